"""Queue configurations that were proposed to the core and wait for its verdict.

Rule 1: each is judged by itself: a verdict finds its text by the checksum, and its client
        is answered.
Rule 2: what a verdict accepts is what the next recovery brings, with the last good one before it
        beside it; what is refused is never stored.
Rule 3: they are stored with the world until the verdict, so a crash of either side loses none:
        a recovery proposes them again, in order.

Limits: MAX_PROPOSALS wait at a time. One that a client waits for is refused beyond that; of those
that were found in a watched file or ConfigMap, where only the latest counts, the last is held back
until there is room.
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
    """The proposals of one world. ``send`` puts a text, and settings, on their way to the core."""

    def __init__(self, world: World, send: Callable[[str, Mapping[str, str]], None]) -> None:
        self.error = ""  # what is wrong with the configuration that was judged last
        self.accepted = 0
        self.refused = 0
        self._world = world
        self._send = send

    def add(self, message_id: str, config: str, settings: Mapping[str, str], asker: str) -> str:
        """Propose a text, once; return why not ("": it is proposed, or was)."""
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
        """Propose everything that is not judged once more: the core has recovered since."""
        for proposal in self._world.proposals:
            self._send(proposal.config, proposal.settings)

    def judge(self, result: ConfigurationResult) -> Proposal | None:
        """Take a verdict in; return the proposal that it judges, None: it is of no open one."""
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
        """Apply the verdict on the text of a recovery; a bad one is stored beside the good one.

        So every recovery tries it, falls back and reports it, until a better one is proposed.
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
