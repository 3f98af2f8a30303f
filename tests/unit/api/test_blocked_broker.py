"""While the broker accepts nothing, readiness, why and the metrics say so; then no more."""

import asyncio
from types import SimpleNamespace

from httpx import ASGITransport, AsyncClient

from services.api.replica import Replica
from services.api.routes.app import make_app
from shared.bus.base import DeadLetters
from shared.bus.blocked import Blocked
from shared.model.units import seconds
from tests.patience import until
from tests.unit.api.following import System

START = seconds(1000)


async def none_there(most, *_):
    return DeadLetters((), 0)


async def test_readiness_why_and_metrics_say_that_the_broker_accepts_nothing():
    system = System()
    host = SimpleNamespace(now_ns=START, connected_ns=START, away_since_ns=0, heartbeat_ns=1)
    host.dead_letters = none_there
    app = make_app(Replica(lambda: host, lambda: system.machine, beats=True))
    system.answer_with(app)
    system.node("n1", vcore=1, pods=9)
    system.application("a")
    system.asks("a", ["p"], {"vcore": 5})
    sentence = (await system.get("/v1/why/a")).json()["sentence"]
    assert (await system.get("/health/ready")).status_code == 200
    assert "\nmuster_broker_blocks 0.0\n" in (await system.get("/metrics")).text
    is_over = asyncio.Event()
    watching = asyncio.create_task(Blocked("one").watch(is_over.wait))

    async def is_said():
        return (await system.get("/health/ready")).status_code == 503

    await until(is_said)
    assert (
        (await system.get("/health/ready"))
        .json()["status"]
        .startswith("the broker has accepted nothing for ")
    )
    during = (await system.get("/v1/why/a")).json()["sentence"]
    assert during.startswith(f"{sentence} (the broker has accepted nothing for ")
    assert "\nmuster_broker_blocks 1.0\n" in (await system.get("/metrics")).text
    transport = ASGITransport(app)
    async with AsyncClient(transport=transport, base_url="http://muster") as client:
        refused = await client.delete("/v1/applications/a")  # at once: nothing of it waits
    assert refused.status_code == 503
    assert refused.json()["message"].endswith(" again: nothing was handed in; try again")
    is_over.set()

    async def is_over_for_all():
        return (await system.get("/health/ready")).status_code == 200

    await until(is_over_for_all)
    assert (await system.get("/v1/why/a")).json()["sentence"] == sentence
    assert "\nmuster_broker_blocks 0.0\n" in (await system.get("/metrics")).text
    watching.cancel()
