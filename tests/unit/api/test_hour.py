"""The last hour of each queue: a point each half minute while the core is followed."""

from types import SimpleNamespace

from services.api.projection import hour as room
from services.api.projection.hour import EVERY_NS, MAX_POINTS
from shared.messages.envelope import API_ALL, Envelope
from shared.messages.interface import UserGroupInformation
from shared.messages.protocol import Heartbeat
from shared.messages.state import EvictionState
from tests.builders import config_of
from tests.unit.api.following import System

ONE = {"vcore": 1_000}
LEAVES = "{name: ml, queues: [{name: a, resources: {max: {vcore: 4}}}, {name: b}]}"


def system_with(now_ns=EVERY_NS, config=LEAVES):
    system = System(config_of(config))
    system.has_clock, system.now_ns = True, now_ns
    system.node("n1", vcore=2_000)
    return system


def pass_time(system, times=1):
    """Let half minutes pass in which nothing is heard but the core's heart."""
    for _ in range(times):
        system.now_ns += EVERY_NS
        beat = Envelope("h", "Heartbeat", Heartbeat("x"), API_ALL, "core", epoch=system.epoch)
        system.machine.handle(beat, system.now_ns)


async def points(system, queue="root", most=None):
    answer = await system.get(f"/v1/history?queue={queue}")
    assert answer.status_code == 200
    return [SimpleNamespace(**point) for point in answer.json()["points"]][-(most or 0) :]


async def test_a_point_says_what_was_so_before_the_next_message():
    system = system_with()
    system.application("a-1", "root.ml.a")
    system.asks("a-1", ["k1", "k2", "k3"], ONE)
    pass_time(system)
    system.asks("a-1", ["k4"], ONE)
    (last,) = await points(system, "root.ml.a", 1)
    assert last.time % EVERY_NS == 0
    assert last.time == system.now_ns
    assert (last.allocated, last.pending) == ({"vcore": 2_000}, {"vcore": 1_000})
    assert last.max == {"vcore": 4_000}
    assert (last.waiting, last.evicted) == (1, 0)
    pass_time(system)
    (last,) = await points(system, "root.ml.a", 1)
    assert last.waiting == 2


async def test_a_queue_counts_those_below_it():
    system = system_with()
    for name in ("a", "b"):
        system.application(name, f"root.ml.{name}")
        system.asks(name, [f"{name}-{at}" for at in range(3)], ONE)
    pass_time(system)
    waiting = {path: (await points(system, path, 1))[0].waiting for path in ("root", "root.ml")}
    assert waiting == {"root": 4, "root.ml": 4}
    (whole,) = await points(system, "root", 1)
    assert (whole.allocated, whole.max) == ({"vcore": 2_000}, {"vcore": 2_000})


async def test_evictions_are_counted_once_for_the_queue_and_those_above_it():
    system = system_with()
    evicted = EvictionState(system.now_ns, "k", "a", "n1", "priority", "", queue_name="root.ml.a")
    for _ in range(3):
        system.projection._on_eviction(evicted)
    pass_time(system)
    pass_time(system)
    for queue, counts in (("root.ml.a", [3, 0]), ("root", [3, 0]), ("root.ml.b", [0, 0])):
        assert [point.evicted for point in await points(system, queue, 2)] == counts


async def test_a_user_counts_what_their_live_applications_use_and_lose():
    system = system_with()
    for name in ("a", "b"):
        system.application(name, f"root.ml.{name}")
        system.asks(name, [f"{name}-{at}" for at in range(3)], ONE)
    user = system.model.applications["a"].summary.user
    evicted = EvictionState(system.now_ns, "k", "a", "n1", "priority", "", queue_name="root.ml.a")
    system.projection._on_eviction(evicted)
    pass_time(system)
    value = (await system.get(f"/v1/history?user={user}")).json()
    assert value["userName"] == user
    last = SimpleNamespace(**value["points"][-1])
    assert (last.allocated, last.pending) == ({"vcore": 2_000}, {"vcore": 4_000})
    assert (last.max, last.waiting, last.evicted) == (None, 4, 1)
    assert (await system.get("/v1/history?user=nobody-here")).json()["points"] == []


async def test_a_group_counts_what_its_live_applications_use_and_lose():
    limited = "{name: a, limits: [{limit: l, groups: [team], maxresources: {vcore: 9}}]}"
    system = system_with(config=limited)
    for name, groups in (("a", ("team",)), ("b", ("team", "other")), ("c", ())):
        system.application(name, "root.a", ugi=UserGroupInformation(f"user-{name}", groups))
        system.asks(name, [f"{name}-{at}" for at in range(2)], ONE)
    evicted = EvictionState(system.now_ns, "k", "b", "n1", "priority", "", queue_name="root.a")
    system.projection._on_eviction(evicted)
    pass_time(system)
    value = (await system.get("/v1/history?group=team")).json()
    assert value["groupName"] == "team"
    last = SimpleNamespace(**value["points"][-1])
    assert (last.allocated, last.pending) == ({"vcore": 2_000}, {"vcore": 2_000})
    assert (last.max, last.waiting, last.evicted) == (None, 2, 1)
    assert (await system.get("/v1/history?group=other")).json()["points"] == []


async def test_an_hour_of_points_is_kept():
    system = system_with()
    pass_time(system, MAX_POINTS + 20)
    found = await points(system)
    assert len(found) == MAX_POINTS
    assert found[-1].time - found[0].time == (MAX_POINTS - 1) * EVERY_NS
    assert (MAX_POINTS * EVERY_NS) == 3600 * 10**9


async def test_while_the_core_is_not_followed_there_is_a_gap():
    system = system_with()
    pass_time(system, 2)
    system.projection.is_ready = False
    before = len(await points(system))
    pass_time(system, 5)
    assert len(await points(system)) == before


async def test_a_queue_that_has_gone_has_its_history_and_one_that_never_was_is_not_found():
    system = system_with()
    pass_time(system, 2)
    del system.model.queues["root.ml.b"]
    assert len(await points(system, "root.ml.b")) >= 2
    answer = await system.get("/v1/history?queue=root.no")
    assert (answer.status_code, answer.json()["message"]) == (404, "Queue root.no not found")


async def test_of_very_many_queues_the_first_have_a_history(monkeypatch):
    monkeypatch.setattr(room, "MAX_QUEUES", 2)
    system = system_with()
    pass_time(system)
    assert all(len(queues) == 2 for _, queues in system.projection.hour.points)


async def test_a_replica_that_starts_again_goes_on_with_the_hour_of_before():
    system, other = system_with(), system_with(now_ns=100 * EVERY_NS)
    pass_time(system, 3)
    pass_time(other)
    old = [time_ns for time_ns, _ in system.projection.hour.points]
    own = [time_ns for time_ns, _ in other.projection.hour.points]
    other.machine.partitions.stand_in(system.machine.partitions)
    assert [time_ns for time_ns, _ in other.projection.hour.points] == [*old, *own]


def test_a_queue_in_which_nothing_happens_is_kept_once():
    system = system_with()
    pass_time(system, 50)
    rows = [queues["root.ml.a"] for _, queues in system.projection.hour.points]
    assert len(set(map(id, rows[1:]))) == 1
