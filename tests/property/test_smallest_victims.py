"""Who is preempted on one node is a smallest set that helps, as every set tried one by one shows."""

from itertools import combinations

from hypothesis import event, given, settings
from hypothesis import strategies as st

from shared.messages.constraints import Constraints
from shared.messages.interface import Allocation, TerminationType
from tests.builders import Core, config_of, section

TYPES = ("vcore", "memory", "gpu")
LEAVES = ("one", "two")
OF_P = ("root.p.one", "root.p.owed", "root.p.two")
amounts = st.fixed_dictionaries(
    {
        "vcore": st.integers(0, 4),
        "memory": st.integers(1, 6),
        "gpu": st.sampled_from([0, 0, 0, 1, 2]),
    }
)
pods = st.fixed_dictionaries(
    {
        "leaf": st.sampled_from(LEAVES),
        "amount": amounts,
        "rank": st.sampled_from([0, 0, 0, 1, 2, 3]),
        "priority": st.sampled_from([0, 0, 0, 5]),
    }
)
asks = st.fixed_dictionaries(
    {
        "vcore": st.integers(1, 6),
        "memory": st.integers(0, 12),
        "gpu": st.sampled_from([0, 0, 1, 2]),
    }
)
free = st.fixed_dictionaries(
    {"vcore": st.integers(0, 3), "memory": st.integers(0, 9), "gpu": st.integers(0, 2)}
)
guarantees = st.fixed_dictionaries({leaf: st.integers(0, 6) for leaf in LEAVES})
spare_max = st.one_of(st.none(), st.integers(0, 4))  # what their parent's max leaves of vcore


def total(chosen, name):
    return sum(pod["amount"][name] for pod in chosen)


class Case:
    """Pods on one node, in two leaves that are guaranteed something, and an ask of a third."""

    def __repr__(self) -> str:
        return f"Case({vars(self)})"

    def __init__(self, there, asked, spare, guaranteed, left_of_max):
        self.there = [{**pod, "key": f"v{at}"} for at, pod in enumerate(there)]
        self.asked = {name: value for name, value in asked.items() if value}
        self.capacity = {name: total(there, name) + spare[name] for name in TYPES}
        self.guaranteed = guaranteed
        self.max = None
        if left_of_max is not None:  # and it holds what is guaranteed below it
            least = sum(guaranteed.values()) + asked["vcore"]
            self.max = max(total(there, "vcore") + left_of_max, least)

    def core(self) -> Core:
        leaves = [
            "{name: %s, resources: {guaranteed: {vcore: %dm}}}" % item
            for item in (*self.guaranteed.items(), ("owed", self.asked["vcore"]))
        ]
        most = "resources: {max: {vcore: %dm}}, " % self.max if self.max is not None else ""
        core = Core(config_of("{name: p, %squeues: [%s]}" % (most, ", ".join(leaves))))
        core.node("n1", **self.capacity)
        for leaf in (*LEAVES, "owed"):
            core.application(leaf, f"root.p.{leaf}")
        for at, pod in enumerate(self.there):
            held = Allocation(
                pod["key"], pod["leaf"], "n1", dict(pod["amount"]), priority=pod["priority"],
                originator=bool(pod["rank"] % 2), allow_preempt_self=pod["rank"] < 2,
                create_time_ns=core.now_ns + at,
            )  # fmt: skip
            core.update(allocations=(held,))
        assert sorted(core.partition.queues) == ["root", "root.p", *sorted(OF_P)]
        return core

    def has_room(self, chosen, *, in_queues=True) -> bool:
        stay = [pod for pod in self.there if pod not in chosen]
        on_node = all(total(stay, n) + v <= self.capacity[n] for n, v in self.asked.items())
        most = self.max if in_queues else None
        return on_node and (most is None or total(stay, "vcore") + self.asked["vcore"] <= most)

    def leaves_enough(self, chosen) -> bool:
        """Whether leaves that lose some keep what they are guaranteed of it."""
        for leaf, guaranteed in self.guaranteed.items():
            taken = [pod for pod in chosen if pod["leaf"] == leaf]
            used = total([pod for pod in self.there if pod["leaf"] == leaf], "vcore")
            if guaranteed and total(taken, "vcore") and used - total(taken, "vcore") < guaranteed:
                return False
        return True

    def may_go(self, pod, *, by_guarantee=True) -> bool:
        guaranteed = self.guaranteed[pod["leaf"]] if by_guarantee else 0
        used = total([one for one in self.there if one["leaf"] == pod["leaf"]], "vcore")
        in_common = any(pod["amount"][name] for name in self.asked)
        return in_common and pod["priority"] == 0 and (not guaranteed or used > guaranteed)


def brute_force(candidates, helps):
    """Return the highest rank and the size of a best set, None where no set helps."""
    for highest in sorted({pod["rank"] for pod in candidates}):
        among = [pod for pod in candidates if pod["rank"] <= highest]
        for size in range(1, len(among) + 1):
            if any(helps(list(chosen)) for chosen in combinations(among, size)):
                return highest, size
    return None


def compare(case, keys, wanted, helps):
    taken = [pod for pod in case.there if pod["key"] in keys]
    event("none helps" if wanted is None else f"{wanted[1]} of {len(case.there)}")
    if wanted is None:
        assert taken == []
        return
    assert (max((pod["rank"] for pod in taken), default=None), len(taken)) == wanted
    assert helps(taken)
    for pod in taken:
        assert not helps([other for other in taken if other is not pod]) or len(taken) == 1


def released(responses) -> list[str]:
    items = section(responses, "released_allocations")
    assert {item.termination_type for item in items} <= {TerminationType.PREEMPTED_BY_SCHEDULER}
    return [item.allocation_key for item in items]


CASES = st.builds(Case, st.lists(pods, min_size=1, max_size=9), asks, free, guarantees, spare_max)


@settings(max_examples=200)
@given(CASES)
def test_an_ask_of_a_queue_that_is_owed_takes_a_smallest_set(case):
    core = case.core()
    core.asks("owed", ["wants"], dict(case.asked), create_time_ns=core.now_ns)
    if case.has_room([]):
        return
    core.now_ns += 31_000_000_000
    # no look is due for what no node has of a type
    keys = released(core.fire_own("preemption")) if "preemption" in core.partition.timers else []

    def helps(chosen):
        return case.has_room(chosen) and case.leaves_enough(chosen)

    compare(case, keys, brute_force([*filter(case.may_go, case.there)], helps), helps)
    core.check()


@settings(max_examples=200)
@given(CASES)
def test_an_ask_that_must_have_its_node_takes_a_smallest_set(case):
    case.max = None
    core = case.core()
    core.node("empty", **dict.fromkeys(TYPES, 100))  # so that the root has the room
    if case.has_room([]):
        return
    there = Constraints(required_node="n1")
    said = core.asks("owed", ["wants"], dict(case.asked), constraints=there)
    candidates = [pod for pod in case.there if case.may_go(pod, by_guarantee=False)]
    compare(case, released(said), brute_force(candidates, case.has_room), case.has_room)
    core.check()
