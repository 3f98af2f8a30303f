"""Random histories of a core, by mode and seed: what came before a submission, and that one.

Every mode is another set of settings, and where it matters another configuration and other pods.
"""

import random
from dataclasses import dataclass, field, replace

from shared.messages.constraints import Constraints
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    TerminationType,
    UserGroupInformation,
)
from shared.model.gpus import GPU, GPU_SHARE
from shared.model.names import RUN_SECONDS
from shared.model.resources import multiply
from shared.model.units import seconds
from tests.builders import Core, config_of

LEAVES = ("{name: a, resources: {max: {vcore: 9}}}", "{name: b}")
OWED = (
    "{name: a, resources: {guaranteed: {vcore: 6}}, properties: {preemption.delay: 1s}}",
    "{name: b, properties: {preemption.delay: 1s}}",
)
LIMITED = (
    "{name: a, maxapplications: 2, limits: [{limit: l, users: [alice], maxresources: {vcore: 5}}]}",
    "{name: b, limits: [{limit: l, users: ['*'], maxapplications: 2}]}",
)
CLUSTER = ("gangAdmission", "cluster")
LANE = (CLUSTER, ("reservations", "gang"))
BACKFILL = ("backfill", "enabled")


@dataclass(frozen=True)
class Mode:
    """Settings, the leaves below the root, and what is special about nodes and pods."""

    settings: tuple = ()
    leaves: tuple = LEAVES
    more: frozenset = field(default_factory=frozenset)


MODES = {
    "default": Mode(),
    "yunikorn preset": Mode((("preset", "yunikorn"),)),
    "muster preset": Mode((("preset", "muster"),), more=frozenset({"run times"})),
    "cluster": Mode((CLUSTER,)),
    "cluster, backfill": Mode((CLUSTER, BACKFILL)),
    "lane": Mode(LANE, more=frozenset({"run times"})),
    "lane, backfill": Mode((*LANE, BACKFILL), more=frozenset({"run times"})),
    "lane, shortest first": Mode(
        (*LANE, ("backfill", "shortestFirst")), more=frozenset({"run times"})
    ),
    "partial": Mode((("gangAdmission", "partial"),)),
    "asks reserve, backfill": Mode(
        (("reservations", "asks"), BACKFILL, ("reservationDelay", "1s"))
    ),
    "stateaware": Mode(
        (("stateAware", "filtered"),),
        ("{name: a, properties: {application.sort.policy: stateaware}}", "{name: b}"),
    ),
    "fair gangs": Mode(
        (("fairLeafGangs", "enabled"),),
        ("{name: a, properties: {application.sort.policy: fair}}", "{name: b}"),
    ),
    "preemption": Mode((), OWED),
    "kai": Mode((("policy", "kai"),), OWED),
    "limits": Mode((CLUSTER,), LIMITED),
    "devices": Mode((CLUSTER,), more=frozenset({"devices"})),
    "constraints": Mode((CLUSTER,), more=frozenset({"constraints"})),
}
BOUND = (
    Constraints(),
    Constraints(),
    Constraints(required_node="n1"),
    Constraints(node_selector=(("zone", "z"),)),
)


class History:
    """A core with what has happened to it; ``submit`` and ``go_on`` say what happens next."""

    def __init__(self, mode: str, seed: int) -> None:
        self.mode = MODES[mode]
        self._rng = random.Random(f"{mode}{seed}")
        self.core = Core(config_of(*self.mode.leaves), settings=self.mode.settings)
        devices = {GPU: 2} if "devices" in self.mode.more else {}
        for number in range(self._rng.choice([2, 3, 4])):
            self.core.node(f"n{number}", vcore=4000, pods=50, **devices)
        for number in range(self._rng.randrange(2, 9)):
            self._step(f"old{number}")
        self.new = self._submission("new")

    def submit(self) -> dict[str, str]:
        """Submit what is new; return where its pods are placed."""
        application, asks = self.new
        self.core.update(new_applications=(application,), asks=asks)
        held = self.core.partition.applications.get("new")
        return {key: each.node_id for key, each in held.allocations.items()} if held else {}

    def go_on(self, steps: int) -> list[object]:
        """Let more happen; return all that the core has answered."""
        for number in range(steps):
            self._step(f"later{number}")
        return [(answer.to, answer.message) for answer in self.core.answers]

    def _step(self, name: str) -> None:
        core, rng = self.core, self._rng
        application, asks = self._submission(name)
        core.now_ns += seconds(rng.choice([0, 1, 3]))
        core.update(new_applications=(application,))
        core.update(asks=asks)
        if rng.random() < 0.3 and "preemption" in core.partition.timers:
            core.fire_own("preemption")
        held = [
            (owner.id, key, why)
            for owner in core.partition.applications.values()
            for key in owner.allocations
            for why in (owner.released.get(key, TerminationType.STOPPED_BY_RM),)
        ]
        if held and rng.random() < 0.4:
            owner, key, why = rng.choice(held)
            core.update(releases=(AllocationRelease(owner, key, TerminationType(why)),))

    def _submission(self, name: str) -> tuple[AddApplicationRequest, tuple[AllocationAsk, ...]]:
        rng, more = self._rng, self.mode.more
        queue, size = rng.choice(["root.a", "root.b"]), rng.choice([1, 2, 3, 4])
        count, priority = rng.choice([1, 1, 2, 4]), rng.choice([0, 0, 0, 5])
        one = {"vcore": size * 1000}
        if "devices" in more and rng.random() < 0.6:
            one |= rng.choice([{GPU: 1}, {GPU: 2}, {GPU_SHARE: 500}, {GPU_SHARE: 300}])
        is_gang = rng.random() < 0.4
        user = rng.choice(["alice", "bob"])
        application = AddApplicationRequest(
            name,
            queue,
            ugi=UserGroupInformation(user, (user,)),
            placeholder_ask=multiply(one, count) if is_gang else {},
        )
        ask = AllocationAsk(
            "",
            name,
            one,
            priority=priority,
            placeholder=is_gang,
            task_group_name="tg" if is_gang else "",
            constraints=rng.choice(BOUND) if "constraints" in more else Constraints(),
        )
        asks = []
        for at in range(count):
            is_stated = "run times" in more and rng.random() < 0.7
            tags = {RUN_SECONDS: str(rng.choice([10, 60, 300]))} if is_stated else {}
            asks.append(replace(ask, allocation_key=f"{name}-{at}", allocation_tags=tags))
        return application, tuple(asks)
