"""What a bind comes to where its outcome is not known: the pod is read, and says how it is."""

import asyncio
from contextlib import suppress
from http import HTTPStatus

import pytest

from services.shim_adapter.backends.kubernetes import bodies
from services.shim_adapter.backends.kubernetes import operations as operations_module
from services.shim_adapter.backends.kubernetes.client import ApiServerError
from services.shim_adapter.backends.kubernetes.observed import Bound, NotBound
from services.shim_adapter.backends.kubernetes.operations import Operation, Operations, bind
from services.shim_adapter.records import PodRecord
from shared.messages.commands import PodSpec
from tests.patience import patience, until


class Client:
    """A client whose API server is never away, or comes back when a test says so."""

    back: asyncio.Event | None = None

    async def until_back(self) -> None:
        self.back = asyncio.Event()
        await self.back.wait()


class Refusing(Client):
    """A client of an API server that refuses every bind, and shows the pod as it is."""

    def __init__(self, pod: dict) -> None:
        self.pod = pod

    async def request(self, method, path, body=None, **_):
        if method == "POST":
            assert path.endswith("/binding")
            raise ApiServerError(HTTPStatus.CONFLICT, "Conflict", "the pod is assigned already")
        return self.pod


@pytest.mark.parametrize(
    ("uid", "node", "is_bound"),
    [
        ("p-uid", "n1", True),  # it was we: the answer was lost
        ("p-uid", "n2", False),  # another scheduler was first
        ("other", "n1", False),  # the pod is another one of the same name
    ],
)
async def test_a_bind_that_met_a_conflict_is_ours_if_the_pod_is_where_we_put_it(
    uid, node, is_bound
):
    heard: asyncio.Queue = asyncio.Queue()
    shown = {"metadata": {"uid": uid}, "spec": {"nodeName": node}}
    operations = Operations(Refusing(shown), heard.put_nowait)
    record = PodRecord("p-uid", PodSpec("p", "app", {"vcore": 1}), 1, 1)
    operations.add(bind(record, "n1"))
    task = asyncio.create_task(operations.run())
    async with patience():
        news = await heard.get()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    reason = "the pod is assigned already"
    assert news == (Bound("p-uid") if is_bound else NotBound("p-uid", reason))


class Answering(Client):
    """A client whose API server does everything, and notes in which order; it takes its time."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request(self, method, path, body=None, **_):
        self.asked.append(path.rpartition("/")[2])
        await asyncio.sleep(0)
        return {}


async def carried_out(operations, client, until_asked):
    task = asyncio.create_task(operations.run())
    async with patience():
        while len(client.asked) < until_asked:
            await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_binds_go_before_events_and_conditions_that_were_to_be_written_before_them():
    client = Answering()
    operations = Operations(client, lambda _: None)
    records = [PodRecord(f"u{at}", PodSpec(f"p{at}", "app", {}), 1, 1) for at in range(200)]
    for record in records:
        operations.add(Operation("note", record, {"kind": "Event"}))
    operations.add(Operation("note", records[0], {"status": {}}))
    for record in records:
        operations.add(bind(record, "n1"))
    await carried_out(operations, client, 401)
    assert client.asked == ["binding"] * 200 + ["status"] + ["events"] * 200


@pytest.mark.parametrize(
    ("conditions", "events", "written"),
    [
        (3, 7, ["status"] * 3 + ["events"] * 7),
        (3, 8, ["status"] * 3 + ["events"] * 7),
        (10, 5, ["status"] * 10),
        (11, 0, ["status"] * 10),
    ],
)
@pytest.mark.parametrize("are_events_first", [True, False])
async def test_where_there_are_too_many_notes_events_are_left_out_before_conditions(
    monkeypatch, conditions, events, written, are_events_first
):
    """Autoscalers wait for conditions; a large gang has more events than are kept."""
    monkeypatch.setattr(operations_module, "MAX_NOTES", 10)
    client = Answering()
    operations = Operations(client, lambda _: None)
    left_out = operations_module._NOTES_LEFT_OUT._value
    before = left_out.get()
    kinds = [{"status": {}}] * conditions + [{"kind": "Event"}] * events
    for at, body in enumerate(reversed(kinds) if are_events_first else kinds):
        record = PodRecord(f"u{at}", PodSpec(f"p{at}", "app", {}), 1, 1)
        operations.add(Operation("note", record, body))
    operations.add(bind(record, "n1"))
    await carried_out(operations, client, len(written) + 1)
    assert client.asked == ["binding", *written]
    assert left_out.get() - before == conditions + events - len(written)


async def test_a_note_that_has_waited_for_long_is_written_beside_binds(monkeypatch):
    monkeypatch.setattr(operations_module, "PATIENCE_SECONDS", 0.0)
    client = Answering()
    operations = Operations(client, lambda _: None)
    for at in range(200):
        record = PodRecord(f"u{at}", PodSpec(f"p{at}", "app", {}), 1, 1)
        operations.add(bind(record, "n1"))
    operations.add(Operation("note", record, {"kind": "Event"}))
    await carried_out(operations, client, 201)
    assert client.asked.index("events") < 200


def test_what_is_deleted_or_evicted_is_this_pod_and_no_later_one_of_its_name():
    record = PodRecord("p-uid", PodSpec("p", "app", {"vcore": 1}), 1, 1)
    assert bodies.deletion("p-uid")["preconditions"] == {"uid": "p-uid"}
    assert bodies.eviction(record)["deleteOptions"]["preconditions"] == {"uid": "p-uid"}
    assert bodies.binding(record, "n1")["metadata"]["uid"] == "p-uid"


class Away(Client):
    """A client of an API server that is away, and counts what it is asked meanwhile."""

    def __init__(self) -> None:
        self.asked, self.done, self.is_away = 0, 0, True

    async def request(self, method, path, body=None, **_):
        self.asked += method == "POST"
        if self.is_away:
            raise ApiServerError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalError", "no etcd")
        self.done += 1
        return {}


async def test_no_pause_is_waited_out_when_the_api_server_is_there_again(monkeypatch):
    monkeypatch.setattr(operations_module, "_PAUSE_SECONDS", (3600.0, 3600.0))
    client = Away()
    operations = Operations(client, lambda _: None)
    task = asyncio.create_task(operations.run())
    count = 3 * operations_module.WORKERS
    for at in range(count):
        record = PodRecord(f"u{at}", PodSpec(f"p{at}", "app", {}), 1, 1)
        operations.add(Operation("create", record, {}))
    await until(lambda: client.asked == count, "each is tried once")
    first = client.back
    first.set()
    await until(lambda: client.asked == 2 * count, "and again, the server being away still")
    await until(lambda: client.back is not first, "the next return is waited for")
    client.is_away = False
    client.back.set()
    await until(lambda: client.done == count, "all is done")
    assert operations.pending == 0
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
