"""Who gives back a quota is who would if all allocations of the leaf were put in order."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.scheduler.actions.quota_preemption import HOUR_NS, victims_of
from services.core.scheduler.nodes.victim_kinds import rank_of
from shared.messages.constraints import Constraints
from shared.messages.interface import Allocation, Disruption, DisruptionState
from shared.model.resources import fits_room, total_of
from tests.builders import START_NS, Core, config_of


def plainly(leaf, wanted, states):
    """Return the victims by the letter of rule 3: everybody in order, one after another."""
    candidates = [
        allocation
        for application in leaf.applications.values()
        for key, allocation in application.allocations.items()
        if key not in application.released
        and not allocation.constraints.required_node
        and states.get(key) is not DisruptionState.BARRED
    ]

    def order(allocation):
        parts = [allocation.resource_per_alloc.get(name, 0) for name in wanted]
        return (
            rank_of(allocation, states),
            -sum(part > 0 for part in parts),
            allocation.priority,
            -(allocation.create_time_ns // HOUR_NS),
            max(Fraction(p, value) for p, value in zip(parts, wanted.values(), strict=True)),
            -allocation.create_time_ns,
            allocation.allocation_key,
        )

    taken, chosen = {}, []
    for allocation in sorted(candidates, key=order):
        part = {n: v for n, v in allocation.resource_per_alloc.items() if n in wanted}
        if any(part.values()) and fits_room(wanted, total_of((taken, part))):
            taken = total_of((taken, part))
            chosen.append(allocation)
    return chosen


PODS = st.builds(
    dict,
    application_id=st.sampled_from("xy"),
    resource_per_alloc=st.dictionaries(
        st.sampled_from(["vcore", "memory", "gpu"]), st.integers(0, 6), max_size=3
    ),
    priority=st.integers(-1, 1),
    create_time_ns=st.sampled_from([START_NS + at for at in (0, 1, 2, HOUR_NS, HOUR_NS + 1)]),
    originator=st.sampled_from([False, False, True]),
    allow_preempt_self=st.sampled_from([True, True, False]),
    released=st.sampled_from([False, False, False, True]),
    constraints=st.sampled_from([Constraints()] * 3 + [Constraints(required_node="n1")]),
)


@settings(max_examples=300, deadline=None)
@given(
    pods=st.lists(PODS, max_size=14),
    wanted=st.dictionaries(
        st.sampled_from(["vcore", "memory", "gpu"]), st.integers(1, 20), min_size=1
    ),
    disruptions=st.dictionaries(st.integers(0, 13), st.sampled_from(DisruptionState)),
)
def test_the_victims_are_those_of_the_plain_order(pods, wanted, disruptions):
    core = Core(config_of("{name: a}"))
    core.node("n1", vcore=1000, memory=1000, gpu=1000)
    for name in "xy":
        core.application(name, "root.a", submission_time_ns=1)
    core.update(
        allocations=tuple(
            Allocation(allocation_key=f"k{at}", node_id="n1", **pod) for at, pod in enumerate(pods)
        )
    )
    leaf = core.partition.queues["root.a"]
    news = (
        Disruption(f"k{at}", pods[at]["application_id"], state)
        for at, state in disruptions.items()
        if at < len(pods)
    )
    core.update(disruptions=tuple(news))
    states = {f"k{at}": state for at, state in disruptions.items() if state != "free"}
    assert victims_of(core.partition, leaf, wanted) == plainly(leaf, wanted, states)
