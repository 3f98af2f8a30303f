"""Elastic gangs, whatever comes in whatever order: what their minimums promise.

A gang starts whole or not at all, and so does each part of it. What is taken from a gang that has
its minimum leaves it that; under kai, or nothing. The plain definition of a minimum stands here.
"""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shared.messages.gang_tree import tree_of
from shared.messages.interface import (
    AllocationRelease,
    GangSettings,
    NodeAction,
    NodeInfo,
    SubGroup,
    TerminationType,
)
from shared.model.reasons import EvictionCause
from shared.model.units import seconds
from tests.builders import Core, config_of, section

ONE = {"vcore": 1}
CONFIG = config_of(
    "{name: a}",
    "{name: b}",
    "{name: owed, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 4m}}}",
)
SETTINGS = st.sampled_from(
    [
        (("policy", "kai"),),
        (("policy", "kai"), ("gangGrowth", "age")),
        (),
        (("gangGrowth", "turns"),),
        (("actions", "allocate,preempt,stalegangeviction"),),
        (("preset", "muster"),),
        (("policy", "kai"), ("gangSurplus", "yields")),
        (("gangSurplus", "yields"), ("actions", "allocate,preempt,stalegangeviction")),
    ]
)


@st.composite
def gangs(draw):
    """Draw a gang: a task group, several of them, or groups of groups."""
    if draw(st.booleans()):
        return GangSettings((SubGroup("w", "", draw(st.integers(0, 4))),))
    parts, groups = [], [""]
    for at in range(draw(st.integers(2, 6))):
        parent = draw(st.sampled_from(groups))
        if draw(st.integers(0, 3)) == 0 and len(groups) < 3:
            parts.append(SubGroup(f"g{at}", parent, draw(st.integers(-1, 2)), is_group=True))
            groups.append(f"g{at}")
        else:
            parts.append(SubGroup(f"w{at}", parent, draw(st.integers(0, 3))))
    there = {part.parent for part in parts}
    parts += [SubGroup(f"in-{name}", name, 1) for name in groups if name not in there]
    return GangSettings(tuple(parts), draw(st.integers(-1, 3)))


def has_minimum(gang, held, name="", least=None):
    """Return whether so many pods of each task group are what a gang, or a group of it, needs."""
    parts = [part for part in gang.subgroups if part.parent == name]
    least = gang.minimum if least is None else least
    there = sum(
        has_minimum(gang, held, part.name, part.minimum)
        if part.is_group
        else held.get(part.name, 0) >= part.minimum
        for part in parts
    )
    return there >= (len(parts) if least < 0 else least)


def leaves_of(gang):
    return [part for part in gang.subgroups if not part.is_group]


@st.composite
def counted(draw):
    gang = draw(gangs())
    names = [part.name for part in leaves_of(gang)]
    amounts = st.integers(0, 4)
    return gang, *(Counter({name: draw(amounts) for name in names}) for _ in range(2))


@given(counted())
def test_what_starts_next_is_enough_and_no_more_than_that(drawn):
    gang, has, waiting = drawn
    tree = tree_of(gang)
    assert tree.is_satisfied(has) == has_minimum(gang, has)
    found = Counter(tree.startable(has, waiting))
    assert found <= waiting
    if has_minimum(gang, has):
        assert has_minimum(gang, has + found)
        return
    assert bool(found) == has_minimum(gang, has + waiting)
    for name in found:
        assert has_minimum(gang, has + found)
        assert not has_minimum(gang, has + found - Counter({name: 1}))
        assert tree.least <= sum((has + found).values())


@given(counted())
def test_a_part_is_broken_where_enough_others_run(drawn):
    gang, has, _ = drawn
    broken = tree_of(gang).broken(has)
    assert not broken or has_minimum(gang, has)
    for part in leaves_of(gang):
        if part.name in broken:
            assert 0 < has[part.name] < part.minimum


class ElasticMachine(RuleBasedStateMachine):
    drawn = staticmethod(gangs)  # the gangs that come

    @initialize(settings=SETTINGS, vcore=st.integers(1, 12))
    def start(self, settings, vcore):
        self.begin(settings)
        self.add_node(vcore)

    def begin(self, settings):
        self.is_kai = ("policy", "kai") in settings
        self.core = Core(CONFIG, settings=settings)
        self.gangs, self.leaving, self.sizes = {}, {}, {}
        self.made_way_ns, self.heard = {}, 0
        self.number = self.others = self.nodes = 0

    def add_node(self, vcore):
        name = f"n{self.nodes}"
        self.nodes += 1
        self.sizes[name] = vcore
        node = NodeInfo(name, NodeAction.CREATE, {"vcore": vcore}, labels=self.labels(name))
        self.step(lambda: self.core.update(nodes=(node,)))

    def labels(self, _):
        return {}

    def held(self):
        """Return how many pods of each task group a gang has that are not to go for good."""
        found = {}
        for name in self.gangs:
            app = self.core.partition.applications.get(name)
            pods = app.allocations.items() if app is not None else ()
            found[name] = Counter(
                pod.task_group_name
                for key, pod in pods
                if key not in app.released or app.moved(key) is not None
            )
        return found

    def step(self, act, lost=()):
        """Do something, and compare what gangs have with what they had, but for what was lost."""
        before = self.held()
        for name, counts in before.items():
            counts.subtract(part for owner, part in lost if owner == name)
        responses = act()
        after = self.held()
        evicted = Counter()
        for release in section(responses, "released_allocations"):
            if release.termination_type != TerminationType.PREEMPTED_BY_SCHEDULER:
                continue
            self.leaving[release.allocation_key] = release
            evicted[release.application_id] += 1
        for name, gang in self.gangs.items():
            self.judge(gang, before.get(name, Counter()), after[name], evicted[name])
        self.judge_surplus(before, after)

    def judge_surplus(self, before, after):
        """See that what gangs make way with becomes a start, and that they do not grow soon."""
        answers, self.heard = self.core.answers[self.heard :], len(self.core.answers)
        told = [each for a in answers for each in getattr(a.message, "evictions", ())]
        for name, gang in self.gangs.items():
            since_ns = self.made_way_ns.get(name, 0)
            was = before.get(name, Counter())
            if since_ns and self.core.now_ns < since_ns + seconds(60) and has_minimum(gang, was):
                assert after[name] <= was, (was, after[name])
        for each in told:
            if each.law != EvictionCause.SURPLUS:
                continue
            self.made_way_ns[each.application_id] = self.core.now_ns
            winner = self.core.partition.applications[each.winner]
            assert each.winner != each.application_id
            assert winner.reservations or winner.allocations

    def judge(self, gang, was, now, evicted):
        """See that a gang keeps its minimum, and starts whole, part by part."""
        if evicted and has_minimum(gang, was):
            is_empty = not +now
            assert has_minimum(gang, now) or (is_empty and self.is_kai), (was, now)
        if not +was and +now:
            assert has_minimum(gang, now), now
        for part in leaves_of(gang):
            if not was[part.name] and now[part.name]:
                assert now[part.name] >= part.minimum, (part, now)

    @rule(data=st.data(), queue=st.sampled_from("ab"), priority=st.integers(0, 2))
    @precondition(lambda self: len(self.gangs) < 5)
    def a_gang_comes(self, data, queue, priority):
        gang = data.draw(self.drawn())
        name = f"gang{len(self.gangs)}"
        self.gangs[name] = gang
        self.step(lambda: self.core.application(name, f"root.{queue}", gang=gang))
        for part in leaves_of(gang):
            count = part.minimum + data.draw(st.integers(-1, 3), part.name)
            self.ask(name, part.name, max(0, count), priority)

    @rule(data=st.data(), count=st.integers(1, 3), priority=st.integers(0, 2))
    @precondition(lambda self: self.gangs)
    def more_pods_come(self, data, count, priority):
        name = data.draw(st.sampled_from(sorted(self.gangs)))
        part = data.draw(st.sampled_from(leaves_of(self.gangs[name])))
        self.ask(name, part.name, count, priority)

    def ask(self, name, part, count, priority):
        keys = [f"{name}-{part}-{self.number + at}" for at in range(count)]
        self.number += count
        if keys and name in self.core.partition.applications:
            more = {"task_group_name": part, "priority": priority, "allow_preempt_other": True}
            self.step(lambda: self.core.asks(name, keys, ONE, **more))

    @rule(count=st.integers(1, 4), priority=st.integers(0, 3))
    def others_come_that_are_owed(self, count, priority):
        self.others += 1
        name = f"other{self.others}"
        self.core.application(name, "root.owed")
        keys = [f"{name}-{at}" for at in range(count)]
        more = {"priority": priority, "allow_preempt_other": True}
        self.step(lambda: self.core.asks(name, keys, ONE, **more))

    @rule(data=st.data())
    def a_pod_is_lost(self, data):
        running = [
            (app.id, key, pod.task_group_name)
            for app in self.core.partition.applications.values()
            for key, pod in app.allocations.items()
            if key not in app.released
        ]
        if running:
            name, key, part = data.draw(st.sampled_from(sorted(running)))
            self.confirm(name, key, TerminationType.STOPPED_BY_RM, lost=[(name, part)])

    @rule(data=st.data())
    @precondition(lambda self: self.leaving)
    def a_victim_has_gone(self, data):
        key = data.draw(st.sampled_from(sorted(self.leaving)))
        release = self.leaving.pop(key)
        self.confirm(release.application_id, key, release.termination_type)

    def confirm(self, name, key, why, **more):
        self.leaving.pop(key, None)
        release = AllocationRelease(name, key, why)
        self.step(lambda: self.core.update(releases=(release,)), **more)

    @rule(vcore=st.integers(1, 8))
    @precondition(lambda self: len(self.sizes) < 4)
    def a_node_comes(self, vcore):
        self.add_node(vcore)

    @rule(data=st.data(), vcore=st.integers(1, 12))
    def a_node_has_another_size(self, data, vcore):
        name = data.draw(st.sampled_from(sorted(self.sizes)))
        node = NodeInfo(name, NodeAction.UPDATE, {"vcore": vcore})
        self.step(lambda: self.core.update(nodes=(node,)))

    @rule(wait_s=st.sampled_from([1, 31, 61]))
    def time_passes(self, wait_s):
        until_ns = self.core.now_ns + seconds(wait_s)
        for _ in range(20):
            if self.core.partition.timers.get("preemption", ("", until_ns + 1))[1] > until_ns:
                break
            self.step(lambda: self.core.fire_own("preemption"))
        self.core.now_ns = max(self.core.now_ns, until_ns)

    @invariant()
    def all_sums_are_right(self):
        if hasattr(self, "core"):
            self.core.check()


TestElastic = ElasticMachine.TestCase
