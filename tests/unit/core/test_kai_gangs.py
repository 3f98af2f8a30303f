"""Under kai a gang runs with its minimum or not at all: stale gangs, and how they start again."""

from itertools import count

import pytest

from shared.messages.interface import AllocationRelease, TerminationType
from shared.model.reasons import EvictionCause
from shared.model.units import seconds
from tests.builders import Core, config_of
from tests.table import each_row

KAI = (("policy", "kai"), ("restartRoom", "0s"))  # what a gang has lost is everybody's at once
HOUR_NS = seconds(3_600)
ONE = {"vcore": 1}


class Cluster:
    """A core with a resource manager: it confirms releases and makes evicted pods again."""

    def __init__(self, *leaves: str, settings: tuple = KAI, nodes: int = 1, vcore: int = 3) -> None:
        self.core = Core(config_of(*(leaves or ("{name: a}",))), settings=settings)
        for at in range(nodes):
            self.core.node(f"n{at}", vcore=vcore)
        self.makes_again = True
        self.confirms = True
        self.evicted: list[tuple[int, str, str]] = []  # when, application, key
        self._numbers = count(1)
        self._seen = len(self.core.answers)
        self._groups: dict[str, str] = {}

    def gang(self, name: str, members: int, queue: str = "root.a", **more) -> None:
        """Submit a gang and give it as many real pods."""
        self.core.gang(name, members, ONE, queue=queue, **more)
        self.pods(name, [f"{name}-{at}" for at in range(members)], task_group_name="tg")

    def pods(self, name: str, keys: list[str], **more) -> None:
        self._groups.update(dict.fromkeys(keys, more.get("task_group_name", "")))
        self.core.asks(name, keys, ONE, **more)
        self.settle()

    def lose(self, *keys: str) -> None:
        """Have real pods end on their own; nothing makes them again."""
        for key in keys:
            why = TerminationType.STOPPED_BY_RM
            self.core.update(releases=(AllocationRelease(self._owner(key), key, why),))
        self.settle()

    def settle(self) -> None:
        """Do what a resource manager does until nothing is left to do."""
        while self._seen < len(self.core.answers):
            message = self.core.answers[self._seen].message
            self._seen += 1
            for item in getattr(message, "released_allocations", ()):
                self._released(item)

    def _released(self, item: AllocationRelease) -> None:
        name, key, why = item.application_id, item.allocation_key, item.termination_type
        if why == TerminationType.PREEMPTED_BY_SCHEDULER:
            self.evicted.append((self.core.now_ns, name, key))
            if not self.confirms:
                return
        self.core.update(releases=(AllocationRelease(name, key, TerminationType(why)),))
        if why == TerminationType.PREEMPTED_BY_SCHEDULER and self.makes_again:
            again = f"{key}-again{next(self._numbers)}"
            self._groups[again] = self._groups.get(key, "")
            self.core.asks(name, [again], ONE, task_group_name=self._groups[again])

    def _owner(self, key: str) -> str:
        return next(a.id for a in self.core.partition.applications.values() if key in a.allocations)

    def run(self, until_ns: int) -> None:
        """Let every timer fire in its order until so much time has gone."""
        core = self.core
        end_ns = core.now_ns + until_ns
        while True:
            due = [(due_ns, kind, "") for kind, (_, due_ns) in core.partition.timers.items()]
            for application in core.partition.applications.values():
                due += [
                    (due_ns, timer_id, application.id)
                    for timer_id, (_, due_ns) in application.timers.items()
                ]
            if not due or min(due)[0] > end_ns:
                break
            _, kind, name = min(due)
            if name:
                core.fire(name, kind)
            else:
                core.fire_own(kind)
            self.settle()
        core.now_ns = end_ns
        core.check()

    def running(self, name: str) -> list[str]:
        application = self.core.partition.applications[name]
        return [key for key in application.allocations if key not in application.released]


def test_a_stale_gang_is_evicted_once_and_starts_again_as_a_whole():
    cluster = Cluster()
    cluster.gang("gang", 3)
    assert len(cluster.running("gang")) == 3
    cluster.core.application("other", "root.a")
    cluster.pods("other", ["o"])
    cluster.lose("gang-0")
    assert cluster.running("other") == ["o"]
    cluster.pods("gang", ["gang-new"], task_group_name="tg")
    cluster.run(2 * HOUR_NS)
    assert sorted(key for _, _, key in cluster.evicted) == ["gang-1", "gang-2"]
    assert cluster.running("gang") == []
    cluster.lose("o")
    assert len(cluster.running("gang")) == 3


def test_nothing_else_need_wait_for_it_to_be_noticed():
    cluster = Cluster(vcore=10)
    cluster.gang("gang", 3)
    cluster.lose("gang-0")
    cluster.run(seconds(61))
    assert sorted(key for _, _, key in cluster.evicted) == ["gang-1", "gang-2"]
    assert cluster.running("gang") == []  # two of three are asked for again
    cluster.run(2 * HOUR_NS)
    assert (cluster.running("gang"), len(cluster.evicted)) == ([], 2)
    cluster.pods("gang", ["third"], task_group_name="tg")
    assert len(cluster.running("gang")) == 3


def test_within_the_grace_what_it_lacks_may_come():
    cluster = Cluster(vcore=10)
    cluster.gang("gang", 3)
    cluster.lose("gang-0")
    cluster.run(seconds(50))
    cluster.pods("gang", ["third"], task_group_name="tg")
    assert len(cluster.running("gang")) == 3
    cluster.run(HOUR_NS)
    assert cluster.evicted == []


def test_what_it_lacks_starts_together():
    cluster = Cluster(vcore=4)
    cluster.gang("gang", 4)
    cluster.core.application("other", "root.a")
    cluster.pods("other", ["o"])
    cluster.lose("gang-0", "gang-1")
    assert cluster.running("other") == ["o"]
    cluster.pods("gang", ["x", "y"], task_group_name="tg")
    assert sorted(cluster.running("gang")) == ["gang-2", "gang-3"]  # there is room for one
    cluster.lose("o")
    assert len(cluster.running("gang")) == 4


def test_a_gang_that_never_was_whole_is_starting_not_stale():
    settings = (*KAI, ("stalenessGracePeriod", "0s"))
    for admission in ("queue", "partial", "cluster"):
        cluster = Cluster(settings=(*settings, ("gangAdmission", admission)), vcore=2)
        cluster.gang("gang", 3, gang_scheduling_style="Soft")
        cluster.run(seconds(60))
        assert cluster.evicted == [], admission
        cluster.core.node("more", vcore=1)
        cluster.settle()
        cluster.run(seconds(60))
        assert (len(cluster.running("gang")), cluster.evicted) == (3, []), admission


def test_without_a_grace_it_goes_at_once_and_comes_back_whole():
    cluster = Cluster(settings=(*KAI, ("stalenessGracePeriod", "0s")), vcore=10)
    cluster.gang("gang", 3)
    cluster.lose("gang-0")
    cluster.run(0)
    assert sorted(key for _, _, key in cluster.evicted) == ["gang-1", "gang-2"]
    cluster.pods("gang", ["third"], task_group_name="tg")
    cluster.run(HOUR_NS)
    assert (len(cluster.running("gang")), len(cluster.evicted)) == (3, 2)


@pytest.mark.parametrize("settings", [KAI, (("actions", "preempt,stalegangeviction"),)])
def test_in_a_day_no_gang_is_evicted_twice_without_having_been_whole(settings):
    """Gangs that lose pods at random moments, beside others that want the room."""
    cluster = Cluster(settings=settings, nodes=2, vcore=4)
    names = ("one", "two", "three")
    for name in names:
        cluster.gang(name, 3)
    cluster.core.application("small", "root.a")
    cluster.pods("small", [f"s{at}" for at in range(3)])
    ended: set[str] = set()
    for step in range(96):
        ended -= set(_lose_some(cluster, names, step))
        before = len(cluster.evicted)
        cluster.run(seconds(15 * 60))
        for name in {(at_ns, name): name for at_ns, name, _ in cluster.evicted[before:]}.values():
            assert name not in ended, (step, name)
            ended.add(name)
        if step % 3 == 0:
            _make_up(cluster, sorted(ended), step)
    assert len(cluster.evicted) > 10


def _lose_some(cluster: Cluster, names: tuple[str, ...], step: int) -> list[str]:
    """Have a pod of some whole gangs end, and at times a small one, which comes again.

    Return the gangs that were whole when it was their turn.
    """
    whole = []
    for name in names:
        running = cluster.running(name)
        if len(running) >= 3:
            whole.append(name)
            if (step + len(name)) % 7 == 0:
                cluster.lose(running[step % 3])
    for key in cluster.running("small")[:1] if step % 5 == 0 else ():
        cluster.lose(key)
        cluster.pods("small", [f"{key}-{step}"])
    return whole


def _make_up(cluster: Cluster, names: list[str], step: int) -> None:
    """Ask for the pods that gangs lack."""
    for name in names:
        waiting = list(cluster.core.partition.applications[name].asks())
        lacking = 3 - len(cluster.running(name)) - len(waiting)
        keys = [f"{name}-{step}-{at}" for at in range(lacking)]
        cluster.pods(name, keys, task_group_name="tg")


def test_the_loss_of_one_task_group_is_the_gangs():
    """A driver and two workers, and a third above what was announced: without its driver it is stale."""
    cluster = Cluster(vcore=10)
    core = cluster.core
    core.application("gang", "root.a", placeholder_ask={"vcore": 3})
    for name, number in (("driver", 1), ("worker", 2)):
        keys = [f"ph-{name}-{at}" for at in range(number)]
        core.asks("gang", keys, ONE, placeholder=True, task_group_name=name)
    cluster.settle()
    cluster.pods("gang", ["d"], task_group_name="driver")
    cluster.pods("gang", ["w0", "w1", "w2"], task_group_name="worker")
    assert len(cluster.running("gang")) == 4
    cluster.lose("w2")
    cluster.run(seconds(120))
    assert cluster.evicted == []
    cluster.pods("gang", ["w3"], task_group_name="worker")
    cluster.lose("d")
    cluster.run(seconds(120))
    assert sorted(key for _, _, key in cluster.evicted) == ["w0", "w1", "w3"]
    cluster.pods("gang", ["d2"], task_group_name="driver")
    assert len(cluster.running("gang")) == 4


def test_the_eviction_names_its_law():
    cluster = Cluster()
    cluster.gang("gang", 3)
    cluster.lose("gang-0")
    cluster.run(seconds(60))
    laws = [e.law for a in cluster.core.answers for e in getattr(a.message, "evictions", ())]
    assert laws == [EvictionCause.STALE] * 2


# --- victims that take their time ---------------------------------------------------------------


def crowded(idle: int, settings: tuple = KAI) -> Cluster:
    """Return six pods of a queue that is owed three of six, and so many free places."""
    owed = "{name: %s, resources: {guaranteed: {vcore: 3m}}}"
    cluster = Cluster(owed % "one", owed % "two", settings=settings, nodes=3, vcore=2)
    cluster.makes_again = cluster.confirms = False
    cluster.core.application("greedy", "root.one")
    cluster.pods("greedy", [f"g{at}" for at in range(6 - idle)])
    return cluster


@each_row("admission", ["", "queue", "partial"])
@each_row("idle", [0, 1])
def test_nothing_of_a_gang_is_bound_before_all_of_it_has_room(idle, admission):
    cluster = crowded(idle, (*KAI, ("gangAdmission", admission)) if admission else KAI)
    core = cluster.core
    core.gang("gang", 3, ONE, queue="root.two")
    cluster.settle()
    cluster.run(seconds(20))
    victims = [key for _, _, key in cluster.evicted]
    assert len(victims) == 3 - idle
    for key in victims:
        assert cluster.running("gang") == []
        why = TerminationType.PREEMPTED_BY_SCHEDULER
        core.update(releases=(AllocationRelease("greedy", key, why),))
        core.check()
    cluster.settle()
    assert len(cluster.running("gang")) == 3
    assert len(cluster.evicted) == 3 - idle
    cluster.run(HOUR_NS)
    assert len(cluster.evicted) == 3 - idle


def test_room_that_frees_itself_elsewhere_counts_too():
    cluster = crowded(0)
    core = cluster.core
    core.gang("gang", 3, ONE, queue="root.two")
    cluster.settle()
    cluster.run(seconds(20))
    victims = [key for _, _, key in cluster.evicted]
    for key in victims[:2]:
        why = TerminationType.PREEMPTED_BY_SCHEDULER
        core.update(releases=(AllocationRelease("greedy", key, why),))
    assert cluster.running("gang") == []
    core.node("new", vcore=1)
    cluster.settle()
    assert len(cluster.running("gang")) == 3
    core.check()


def test_a_gang_that_starts_again_takes_its_room_as_a_whole_too():
    cluster = crowded(3)
    core = cluster.core
    cluster.gang("gang", 3, queue="root.two")
    assert len(cluster.running("gang")) == 3
    cluster.lose(*cluster.running("gang"))
    cluster.pods("greedy", ["g3", "g4", "g5"])
    cluster.pods("gang", ["x", "y", "z"], task_group_name="tg")
    assert cluster.running("gang") == []
    cluster.run(seconds(30))
    victims = [key for _, _, key in cluster.evicted]
    assert len(victims) == 3
    for key in victims:
        assert cluster.running("gang") == []
        why = TerminationType.PREEMPTED_BY_SCHEDULER
        core.update(releases=(AllocationRelease("greedy", key, why),))
        core.check()
    assert sorted(cluster.running("gang")) == ["x", "y", "z"]
