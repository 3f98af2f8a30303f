"""Fair shares under kai against the written rules, done plainly and in exact fractions.

Trees of queues, by a queues.yaml; pods that run and pods that wait, by messages. The plain way is
docs/rules/kai.md#fair-share, rule by rule, and knows nothing of ledgers: what a queue asks for is
all that was ever asked for in it.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from math import floor

from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.scheduler.actions import kai_turns
from services.core.scheduler.actions.live_actions import PartitionAdapter
from services.core.scheduler.constraints.fair_share import set_fair_shares
from services.core.scheduler.statement.trial import Trial
from tests.builders import Core

KAI = (("policy", "kai"),)


@dataclass
class Plain:
    """A queue as its file states it; None is without a limit, or all there is."""

    deserved: int | None
    most: int | None
    weight: int
    priority: int
    below: list["Plain"] = field(default_factory=list)
    path: str = ""
    asked: int = 0
    share: int = 0

    @property
    def wanted(self) -> int:
        return self.asked + sum(child.wanted for child in self.below)

    @property
    def useful(self) -> int:
        return self.wanted if self.most is None else min(self.most, self.wanted)

    @property
    def left(self) -> int:
        return self.useful - self.share


LEAVES = st.builds(
    Plain,
    st.sampled_from([None, 0, 1, 2, 3, 5]),
    st.none(),
    st.integers(0, 3),
    st.sampled_from([90, 100, 100, 110]),
)
TOPS = st.builds(
    Plain,
    st.sampled_from([None, 0, 2, 4, 8]),
    st.sampled_from([None, None, 4, 7]),
    st.integers(0, 3),
    st.sampled_from([100, 100, 110]),
    st.lists(LEAVES, min_size=1, max_size=3),
)
PODS = st.tuples(st.integers(0, 5), st.integers(1, 6), st.booleans(), st.integers(1, 4))


def written(queue: Plain, path: str) -> str:
    """Return a queue of the file."""
    queue.path = path
    children = [written(child, f"{path}.{at}") for at, child in enumerate(queue.below)]
    deserved = "unlimited" if queue.deserved is None else f"{queue.deserved}m"
    return (
        f"{{name: '{path.rpartition('.')[2]}', properties: {{deserved.vcore: {deserved}, "
        f"overquota.weight: '{queue.weight}', overquota.priority: '{queue.priority}'}}"
        + (f", resources: {{max: {{vcore: {queue.most}m}}}}" if queue.most else "")
        + (f", parent: true, queues: [{', '.join(children)}]" if children else "")
        + "}"
    )


def divide(queues: list[Plain], total: int) -> None:
    """Divide a total among queues, and what each gets among those below it."""
    for queue in queues:
        queue.share = min(total if queue.deserved is None else queue.deserved, queue.useful)
    rest = max(0, total - sum(queue.share for queue in queues))
    fractions: dict[int, Fraction] = {}
    priorities = sorted({queue.priority for queue in queues}, reverse=True)
    for priority in priorities:
        rest = by_weight([queue for queue in queues if queue.priority == priority], rest, fractions)
    for priority in priorities:
        hungry = [q for q in queues if q.priority == priority and q.left and q.weight]
        for queue in sorted(hungry, key=lambda queue: -fractions.get(id(queue), 0))[:rest]:
            queue.share += 1
            rest -= 1
    for queue in queues:
        divide(queue.below, queue.share)


def by_weight(queues: list[Plain], rest: int, fractions: dict[int, Fraction]) -> int:
    """Give out a rest in rounds, until none of those that still want more needed less."""
    while True:
        hungry = [queue for queue in queues if queue.left and queue.weight]
        weights, parts = sum(queue.weight for queue in hungry), {}
        for queue in hungry:
            parts[id(queue)] = Fraction(rest * queue.weight, weights)
        needed_less = any(queue.left < parts[id(queue)] for queue in hungry)
        for queue in hungry:
            part = parts[id(queue)]
            given = min(queue.left, floor(part))
            fractions[id(queue)] = part - given if queue.left > given else Fraction(0)
            queue.share += given
            rest -= given
        if not (needed_less and rest):
            return rest


def all_of(queues: list[Plain]) -> list[Plain]:
    return [each for queue in queues for each in (queue, *all_of(queue.below))]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(TOPS, min_size=1, max_size=3),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.lists(PODS, max_size=8),
)
def test_fair_shares_are_what_the_written_rules_say(tops, nodes, pods):
    text = ", ".join(written(queue, f"root.{at}") for at, queue in enumerate(tops))
    core = Core(
        "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [%s]}]}]"
        % text,
        settings=KAI,
    )
    assert not core.partition.settings.refused
    for at, vcore in enumerate(nodes):
        core.node(f"n{at}", vcore=vcore)
    leaves = [queue for queue in all_of(tops) if not queue.below]
    for at, (leaf, vcore, may_go, count) in enumerate(pods):
        queue = leaves[leaf % len(leaves)]
        core.application(f"a{at}", queue.path)
        keys = [f"a{at}-{number}" for number in range(count)]
        core.asks(f"a{at}", keys, {"vcore": vcore}, allow_preempt_self=may_go)
        queue.asked += vcore * count
    divide(tops, sum(nodes))
    expected = {queue.path: [queue.share] for queue in all_of(tops)}
    trial = Trial(core.partition, PartitionAdapter(core.partition))
    set_fair_shares(trial)
    for shares in (trial.shares, kai_turns.divided(core.partition)[2]):
        found = {q.path: share.fair_share for q, share in shares.items() if q.parent is not None}
        assert found == expected
    core.check()
