"""Whatever a submission accepts can be read, explained and deleted: over HTTP, as the CLI asks."""

import asyncio
import json
from urllib.parse import quote

import httpx
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from services.api.replica import Replica
from services.api.routes.app import make_app
from services.cli.client import checked_name, path_of
from services.cli.launcher import LocalCluster
from services.shim_adapter.service import ShimOptions
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.runtime.clock import SystemClock
from tests import patience

ODD = [
    "a/b",
    "..",
    ".",
    "a\nb",
    "a\x1b[2Jb",
    "a%2Fb",
    "-",
    "a_b",
    "A.B",
    "a b",
    "\u2028",
    "ä",
    "a" * 63,
]
NAMES = st.one_of(st.sampled_from(ODD), st.text(min_size=1, max_size=8))
CONFIG = """
partitions:
- name: default
  placementrules: [{name: tag, value: namespace, create: true}]
  queues: [{name: root, submitacl: '*'}]
"""
APP_ID = "yunikorn.apache.org/app-id"


def pod(application: str, name: str, namespace: str) -> dict:
    metadata = {"name": name, "namespace": namespace, "annotations": {APP_ID: application}}
    spec = {"schedulerName": "yunikorn", "containers": [{"name": "c"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def answers(documents: list[dict]) -> None:
    """Submit documents, and ask for and delete whatever is accepted."""
    broker = MemoryBroker()
    capacity = {"pods": 50}
    options = ShimOptions(config=CONFIG, nodes=1, node_capacity=capacity, default_run_ns=0)
    cluster = LocalCluster(lambda: MemoryBus(broker), SystemClock(), options)
    await cluster.start()
    app = make_app(Replica(lambda: cluster.running["api"].host, lambda: cluster.api))
    try:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:

            async def is_ready():
                return (await client.get("/health/ready")).status_code == 200

            await patience.until(is_ready, "the first snapshot")
            body = json.dumps({"kind": "List", "items": documents})
            answer = await client.post("/v1/manifests", content=body)
            if answer.status_code == 400:  # a text that no document may hold: all is refused
                assert (await client.get("/v1/applications")).json() == []
                return
            found = answer.json()
            assert len(found["accepted"]) + len(found["refused"]) == len(documents)
            for item in found["accepted"]:
                await _is_there(client, item)
            for name in sorted({item["applicationID"] for item in found["accepted"]}):
                await _is_deleted(client, name)
    finally:
        await cluster.stop()


def of_the_page(name: str) -> str:
    """Return a name as the live page writes it: JavaScript's ``encodeURIComponent``."""
    return "/" + quote(name, safe="!'()*") + "?partition=default"


async def _is_there(client, item) -> None:
    """One that is accepted is found by its name and its pod's, as the command line asks."""
    name = checked_name(item["applicationID"])

    async def is_known():
        answer = await client.get(f"/v1/applications{path_of(name)}")
        return answer.status_code == 200 and answer.json()["applicationID"] == name

    await patience.until(is_known, f"application {name!r}")
    of_name, of_pod = (checked_name(text) for text in (name, item["name"]))
    for path in (path_of(of_name), path_of(of_pod), of_the_page(name)):
        answer = await client.get(f"/v1/why{path}")
        assert answer.status_code == 200, (path, answer.text)
        assert answer.json()["applicationID"] == name


async def _is_deleted(client, name: str) -> None:
    answer = await client.delete(f"/v1/applications{path_of(name)}")
    assert (answer.status_code, answer.json()["deleted"]) == (200, name)


@settings(max_examples=10, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=6))
@example([(name, f"p{at}", "default") for at, name in enumerate(ODD)])
@example([(f"a{at}", name, "default") for at, name in enumerate(ODD)])
@example([(f"a{at}", f"p{at}", name) for at, name in enumerate(ODD)])
def test_what_is_accepted_can_be_read_explained_and_deleted(names):
    asyncio.run(answers([pod(*item) for item in names]))
