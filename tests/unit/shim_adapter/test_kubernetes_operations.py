"""What a bind comes to where its outcome is not known: the pod is read, and says how it is."""

import asyncio
from contextlib import suppress
from http import HTTPStatus

import pytest

from services.shim_adapter.backends.kubernetes import bodies
from services.shim_adapter.backends.kubernetes.client import ApiServerError
from services.shim_adapter.backends.kubernetes.observed import Bound, NotBound
from services.shim_adapter.backends.kubernetes.operations import Operations, bind
from services.shim_adapter.records import PodRecord
from shared.messages.commands import PodSpec


class Refusing:
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
    async with asyncio.timeout(30):
        news = await heard.get()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    reason = "the pod is assigned already"
    assert news == (Bound("p-uid") if is_bound else NotBound("p-uid", reason))


def test_what_is_deleted_or_evicted_is_this_pod_and_no_later_one_of_its_name():
    record = PodRecord("p-uid", PodSpec("p", "app", {"vcore": 1}), 1, 1)
    assert bodies.deletion("p-uid")["preconditions"] == {"uid": "p-uid"}
    assert bodies.eviction(record)["deleteOptions"]["preconditions"] == {"uid": "p-uid"}
    assert bodies.binding(record, "n1")["metadata"]["uid"] == "p-uid"
