"""Searches for victims that are remembered as failed: decided is what is decided without."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.core.scheduler.actions import live_actions, solver
from services.core.scheduler.model.failed_searches import FailedSearches
from shared.messages.interface import (
    AllocationAskRelease,
    AllocationRelease,
    Disruption,
    DisruptionState,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
)
from shared.messages.protocol import Heartbeat
from shared.model.resources import multiply
from shared.model.units import seconds
from tests.builders import Core, config_of, section

STOPPED = TerminationType.STOPPED_BY_RM
OWED = (
    "{name: a, resources: {guaranteed: {vcore: %s}}}",
    "{name: b, resources: {guaranteed: {vcore: %s}}}",
    "{name: c}",
)
CONFIGS = [
    config_of(
        *(leaf % amount if "%" in leaf else leaf for leaf, amount in zip(OWED, of, strict=True))
    )
    for of in (("4", "4", ""), ("8", "0", ""), ("1", "7", ""))
]
SUBMIT = st.tuples(
    st.just("submit"),
    st.sampled_from("abc"),
    st.integers(1, 3),  # pods
    st.integers(1, 4),  # cores of each
    st.sampled_from([0, 0, 5]),
    st.booleans(),  # a gang
)
PICK = st.integers(0, 50)
OPS = st.lists(
    st.one_of(
        SUBMIT,
        SUBMIT,
        st.tuples(st.just("look"), st.integers(0, 2)),
        st.tuples(st.just("look"), st.integers(0, 2)),
        st.tuples(st.just("ends"), PICK),
        st.tuples(st.just("gone"), PICK),
        st.tuples(st.just("withdraw"), PICK),
        st.tuples(st.just("node"), st.integers(0, 2), st.integers(1, 9)),
        st.tuples(st.just("drain"), st.integers(0, 1), st.booleans()),
        st.tuples(st.just("reload"), st.integers(0, len(CONFIGS) - 1)),
        st.tuples(st.just("barred"), PICK, st.booleans()),
        st.tuples(st.just("raised"), PICK, st.sampled_from([0, 9])),
    ),
    max_size=30,
)


@contextmanager
def forgetting():
    """Have nothing remembered."""
    as_it_is = FailedSearches.holds
    FailedSearches.holds = lambda *_: False
    try:
        yield
    finally:
        FailedSearches.holds = as_it_is


class Driven:
    """A core to which the same happens as to another."""

    def __init__(self, **named):
        self.core = Core(CONFIGS[0], settings=tuple(named.items()))
        for at in range(2):
            self.core.node(f"n{at}", vcore=4, pods=9)
        self.made = 0

    def pods(self):
        return sorted(
            (k, a.id) for a in self.core.partition.applications.values() for k in a.allocations
        )

    def do(self, what, *how):
        self.core.now_ns += 1
        return getattr(self, what)(*how)

    def submit(self, leaf, pods, cores, priority, is_gang):
        self.made += 1
        name, amount = f"app{self.made}", {"vcore": cores}
        placeholder_ask = multiply(amount, pods) if is_gang else {}
        self.core.application(name, f"root.{leaf}", placeholder_ask=placeholder_ask)
        group = {"placeholder": True, "task_group_name": "tg"} if is_gang else {}
        keys = [f"{name}-{at}" for at in range(pods)]
        return self.core.asks(name, keys, amount, priority=priority, **group)

    def look(self, minutes):
        """Let the next looks happen, some time later."""
        found = []
        for _ in range(3):
            self.core.now_ns += seconds(300 * minutes)
            found += self.core.send(Heartbeat("t"), epoch=0)
            if "preemption" in self.core.partition.timers:
                found += self.core.fire_own("preemption")
        return found

    def ends(self, at):
        return self.release(self.pods()[at : at + 1])

    def gone(self, at):
        """Confirm what is being released, or one of it."""
        going = [(key, app.id) for key, app in self.core.partition.releasing.items()]
        return self.release(going if at > 25 else going[at : at + 1])

    def release(self, pods):
        return self.core.update(
            releases=tuple(AllocationRelease(name, key, STOPPED) for key, name in pods)
        )

    def asked(self):
        known = self.core.partition.applications.values()
        return sorted((key, app.id) for app in known for key in app.group_of)

    def withdraw(self, at):
        asks = self.asked()[at : at + 1]
        return self.core.update(
            ask_releases=tuple(AllocationAskRelease(name, key, STOPPED) for key, name in asks)
        )

    def raised(self, at, priority):
        """Ask again, with another priority."""
        applications = self.core.partition.applications
        asks = [applications[n].group_of[key].asks[key].request for key, n in self.asked()]
        return self.core.update(
            asks=tuple(replace(ask, priority=priority) for ask in asks[at : at + 1])
        )

    def node(self, at, cores):
        name = f"n{at}"
        known = name in self.core.partition.nodes.nodes
        action = NodeAction.UPDATE if known else NodeAction.CREATE
        return self.core.update(nodes=(NodeInfo(name, action, {"vcore": cores, "pods": 9}),))

    def drain(self, at, is_drained):
        action = NodeAction.DRAIN_NODE if is_drained else NodeAction.DRAIN_TO_SCHEDULABLE
        return self.core.update(nodes=(NodeInfo(f"n{at}", action),))

    def reload(self, at):
        return self.core.send(UpdateConfiguration(CONFIGS[at]))

    def barred(self, at, is_barred):
        state = DisruptionState.BARRED if is_barred else DisruptionState.FREE
        news = [Disruption(name, key, state) for key, name in self.pods()[at : at + 1]]
        return self.core.update(disruptions=tuple(news))

    def outcome(self):
        return [
            (app.id, app.state, sorted(app.allocations), dict(app.released), sorted(app.group_of))
            for app in self.core.partition.applications.values()
        ]


WAYS = [
    {"policy": "kai"},
    {"policy": "kai", "gangAdmission": "cluster", "starvationGuard": "10m"},
    {"policy": "yunikorn", "actions": "consolidation, preempt"},
]


@pytest.mark.parametrize("way", WAYS, ids=["kai", "kai-cluster", "yunikorn-consolidation"])
@given(ops=OPS)
@settings(max_examples=40)
def test_what_is_decided_is_what_is_decided_without_the_memory(way, ops):
    ours, theirs = Driven(**way), Driven(**way)
    for op in ops:
        ours.do(*op)
        with forgetting():
            theirs.do(*op)
        assert ours.outcome() == theirs.outcome(), op
    ours.core.check()


def test_searches_that_found_nothing_are_not_repeated_until_something_changes(monkeypatch):
    searches = []
    solve = solver.solve
    monkeypatch.setattr(
        live_actions, "solve", lambda *how: searches.append(how[1].name) or solve(*how)
    )
    driven = Driven(policy="kai")
    driven.submit("a", 3, 1, 5, is_gang=False)
    driven.submit("b", 3, 1, 5, is_gang=False)
    driven.submit("b", 1, 4, 0, is_gang=False)
    driven.look(1)
    assert searches
    found = len(searches)
    for _ in range(100):
        driven.look(1)
    assert len(searches) == found
    driven.ends(0)
    driven.look(1)
    assert len(searches) > found
    driven.core.check()
    assert section(driven.core.send(Heartbeat("t"), epoch=0), "released_allocations") == []
