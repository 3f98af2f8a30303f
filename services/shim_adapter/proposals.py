"""Queue configurations proposed to the core and waiting for its result.

Rule 1: each is validated by itself; a result is matched to its text by the checksum, and its client
        is answered.
Rule 2: an accepted configuration is sent in the next recovery, together with the previous valid
        one; a refused one is never stored.
Rule 3: proposals are stored with the world until the result, so a crash of either side loses none:
        a recovery proposes them again, in order.

Limits: MAX_PROPOSALS wait at a time. Beyond that, one from a client is refused. Of those found in a
watched file or ConfigMap, where only the latest counts, the last is held back until there is room.
"""

from collections.abc import Callable, Mapping

from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import Proposal
from shared.messages.interface import ConfigurationResult
from shared.model.checksum import checksum_of

MAX_PROPOSALS = 16
TOO_MANY = (
    f"{MAX_PROPOSALS} queue configurations already wait for validation: nothing has changed, "
    "try again in a moment"
)


class Proposals:
    """The proposals of one world. ``send`` sends a text, and settings, to the core."""

    def __init__(self, world: World, send: Callable[[str, Mapping[str, str]], None]) -> None:
        self.error = ""  # the error of the last validated configuration
        self.accepted = 0
        self.refused = 0
        self._world = world
        self._send = send

    def add(self, message_id: str, config: str, settings: Mapping[str, str], asker: str) -> str:
        """Propose a text once; return why it is refused, "" if it is not."""
        world = self._world
        if any(waiting.message_id == message_id for waiting in world.proposals):
            return ""
        proposal = Proposal(message_id, config, dict(settings), asker)
        if len(world.proposals) < MAX_PROPOSALS:
            world.proposals.append(proposal)
            self._send(config, proposal.settings)
        elif asker:
            return TOO_MANY
        else:
            world.held_back = proposal
        world.is_meta_changed = True
        return ""

    def again(self) -> None:
        """Propose all open proposals again, because the core has recovered."""
        for proposal in self._world.proposals:
            self._send(proposal.config, proposal.settings)

    def judge(self, result: ConfigurationResult) -> Proposal | None:
        """Apply a result; return its proposal, None if there is no such open one."""
        world = self._world
        proposal = self._take(result.checksum)
        if proposal is None:
            self._judge_recovered(result)
            return None
        self.error = result.error
        self.accepted += result.accepted
        self.refused += not result.accepted
        world.is_meta_changed = True
        if result.accepted:
            world.accept_config(proposal.config)
            world.scheduler_settings = dict(proposal.settings) or world.scheduler_settings
        if world.held_back is not None:
            world.proposals.append(world.held_back)
            world.held_back = None
            self._send(world.proposals[-1].config, world.proposals[-1].settings)
        return proposal

    def _judge_recovered(self, result: ConfigurationResult) -> None:
        """Apply the result for the text of a recovery; an invalid one is kept beside the valid one.

        Every recovery then tries it, falls back and reports it, until a better one is proposed.
        """
        world = self._world
        if result.checksum != checksum_of(world.config):
            return
        if result.accepted:
            world.accept_config(world.config)
            return
        world.is_config_good = False
        self.error = result.error
        self.refused += 1

    def _take(self, checksum: str) -> Proposal | None:
        waiting = self._world.proposals
        for at, proposal in enumerate(waiting):
            if checksum_of(proposal.config) == checksum:
                return waiting.pop(at)
        return None
