"""Who works, as the API has it: heard of within three heartbeats and their way, or away."""

from types import SimpleNamespace

import pytest

from services.api.machine import ApiMachine
from services.api.projection.works import Works
from services.api.replica import Replica
from services.api.routes.app import make_app
from shared.messages.envelope import API_ALL, Envelope
from shared.messages.protocol import AtWork
from shared.messages.state import StateDelta
from shared.model.units import seconds
from shared.runtime.beats import silence_ns

START, BEAT = seconds(1000), seconds(1)
SILENCE = silence_ns(BEAT)


def said(service, at_s, *, epoch=0, ready=True, partition="default", message=None):
    beat = message or AtWork(f"{service}-1", is_ready=ready)
    kind = type(beat).__name__
    envelope = Envelope(
        f"{service}{at_s}", kind, beat, API_ALL, service, partition=partition, epoch=epoch
    )
    return envelope, START + seconds(at_s)


def heard(*messages):
    works = Works()
    for envelope, now_ns in messages:
        works.hear(envelope, now_ns)
    return works


def silent(works, at_s, partitions=("default",), started_s=0):
    now_ns = START + seconds(at_s)
    found = works.silent(partitions, START + seconds(started_s), now_ns, SILENCE)
    return [item.sentence(now_ns) for item in found]


ALL = ("core", "shim_adapter", "timers")


def test_nobody_is_called_silent_before_the_replica_has_listened_for_so_long():
    assert silent(Works(), 5) == []
    assert silent(Works(), 6) == [
        "no core has been at work for 6 s",
        "no shim adapter has been at work for 6 s",
        "no timer service has been at work for 6 s",
    ]
    assert silent(Works(), 6, started_s=2) == []


def test_a_service_works_for_as_long_as_its_heartbeats_are_handled():
    works = heard(*(said(service, at) for at in range(3) for service in ALL))
    assert silent(works, 7) == []
    works.hear(*said("shim_adapter", 7))
    works.hear(*said("timers", 7))
    assert silent(works, 8) == ["no core has been at work for 6 s"]
    works.hear(*said("core", 9, epoch=2))
    assert silent(works, 9) == []


def test_what_a_core_decides_says_that_it_works_too():
    works = heard(*(said(service, 0) for service in ALL))
    works.hear(*said("core", 4, message=StateDelta()))
    assert silent(works, 6) == [
        "no shim adapter has been at work for 6 s",
        "no timer service has been at work for 6 s",
    ]


def test_a_core_of_a_lower_epoch_is_none():
    works = heard(*(said(service, 0, epoch=3) for service in ALL))
    for at in range(1, 8):
        works.hear(*said("core", at, epoch=2))
        works.hear(*said("core", at, epoch=2, message=StateDelta()))
        works.hear(*said("shim_adapter", at, epoch=3))
        works.hear(*said("timers", at, epoch=3))
    assert silent(works, 7) == ["no core has been at work for 7 s"]


def test_a_core_that_recovers_works_and_is_not_ready():
    works = heard(*(said(service, 0) for service in ALL), said("core", 1, ready=False))
    works.hear(*said("core", 3, ready=False))
    assert silent(works, 4) == ["the core has been recovering for 3 s"]
    works.hear(*said("core", 5))
    assert silent(works, 5) == []


def test_each_partition_has_a_core_and_timers_of_its_own():
    works = heard(*(said(service, 6) for service in ALL), said("core", 6, partition="gpu"))
    assert silent(works, 6, ("default", "GPU")) == [
        "no timer service of partition GPU has been at work for 6 s"
    ]
    assert works.at_work(("default", "GPU"), START + seconds(6), SILENCE) == {
        ("core", "default"): True,
        ("core", "GPU"): True,
        ("shim_adapter", "default"): True,
        ("timers", "default"): True,
        ("timers", "GPU"): False,
    }


@pytest.fixture
def replica():
    """A replica whose host is a stand-in: what time it is, and since when the bus is away."""
    host = SimpleNamespace(
        now_ns=START, away_since_ns=0, connected_ns=START, heartbeat_ns=BEAT, machine=None
    )
    host.machine = ApiMachine("a")
    return SimpleNamespace(
        host=host, replica=Replica(lambda: host, lambda: host.machine, beats=True)
    )


async def asked(replica, path):
    from httpx import ASGITransport, AsyncClient

    app = make_app(replica.replica)
    async with AsyncClient(transport=ASGITransport(app), base_url="http://127.0.0.1") as client:
        return await client.get(path)


async def test_every_answer_says_what_is_away_and_how_old_its_state_is(replica):
    for service in ALL:
        replica.host.machine.handle(*said(service, 0))
    answered = await asked(replica, "/v1/version")
    assert "muster-away" not in answered.headers
    replica.host.now_ns = START + seconds(12)
    answered = await asked(replica, "/v1/version")
    assert answered.status_code == 200
    assert answered.headers["muster-away"].startswith("no core has been at work for 12 s; no shim")
    assert answered.headers["muster-state-age"] == "12"
    ready = await asked(replica, "/health/ready")
    assert ready.status_code == 503
    assert ready.json()["status"].startswith("no core has been at work for 12 s")


async def test_the_broker_comes_before_those_who_are_heard_by_it(replica):
    replica.host.away_since_ns, replica.host.now_ns = START + seconds(10), START + seconds(33)
    ready = await asked(replica, "/health/ready")
    assert (ready.status_code, ready.json()["status"]) == (503, "the broker has been away for 23 s")
    assert set(replica.replica.works().values()) == {False}


async def test_what_was_known_before_the_broker_was_lost_is_shown_until_there_is_a_snapshot(
    replica,
):
    before = replica.host.machine
    before.partitions.default.model.partition = SimpleNamespace(name="default")
    assert replica.replica.partitions is before.partitions
    replica.host.machine = ApiMachine("a")  # as the host makes it when its connection is lost
    assert replica.replica.partitions is before.partitions
    replica.host.machine.partitions.default.model.partition = SimpleNamespace(name="default")
    assert replica.replica.partitions is replica.host.machine.partitions


def has_state(machine, partition):
    """Have a partition's core have sent a snapshot."""
    found = next(item for item in machine.partitions if item.partition == partition)
    found.model.partition = SimpleNamespace(name=partition)
    found.is_ready = True
    return found.model


async def test_of_each_partition_what_was_known_is_shown_until_its_own_core_has_sent_a_snapshot(
    replica,
):
    """Seed 779 of the simulator: with the first core's snapshot the other's last state was gone."""
    shown = replica.replica
    before = replica.host.machine
    before.partitions.name(("default", "second"))
    has_state(before, "default")
    known = has_state(before, "second")
    assert len(shown.models) == 2
    after = replica.host.machine = ApiMachine("a")
    first = has_state(after, "default")
    assert shown.models == [first, known]
    assert shown.model("Second") is known
    assert (shown.follows("default"), shown.follows("second")) == (True, False)
    again = replica.host.machine = ApiMachine("a")  # and lost again, before the second has come
    first = has_state(again, "default")
    assert shown.models == [first, known]
    again.partitions.name(("default", "second"))
    assert shown.model("second") is known
    newer = has_state(again, "second")
    assert shown.models == [first, newer]
    assert shown.follows("second")


async def test_a_partition_that_is_none_any_more_is_not_shown(replica):
    shown, before = replica.replica, replica.host.machine
    before.partitions.name(("default", "second"))
    has_state(before, "default")
    has_state(before, "second")
    assert len(shown.models) == 2
    after = replica.host.machine = ApiMachine("a")
    first = has_state(after, "default")
    assert len(shown.models) == 2
    after.partitions.name(("default",))
    assert shown.models == [first]
