"""While the broker accepts nothing, readiness, why and the metrics say so; then no more."""

import asyncio

from shared.bus.blocked import Blocked
from tests.patience import until
from tests.unit.api.following import System


async def test_readiness_why_and_metrics_say_that_the_broker_accepts_nothing():
    system = System()
    system.node("n1", vcore=1, pods=9)
    system.application("a")
    system.asks("a", ["p"], {"vcore": 5})
    sentence = (await system.get("/v1/why/a")).json()["sentence"]
    assert (await system.get("/health/ready")).status_code == 200
    assert "\nmuster_broker_blocks 0.0\n" in (await system.get("/metrics")).text
    is_over = asyncio.Event()
    watching = asyncio.create_task(Blocked("one", 20).watch(is_over.wait))

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
    is_over.set()

    async def is_over_for_all():
        return (await system.get("/health/ready")).status_code == 200

    await until(is_over_for_all)
    assert (await system.get("/v1/why/a")).json()["sentence"] == sentence
    assert "\nmuster_broker_blocks 0.0\n" in (await system.get("/metrics")).text
    watching.cancel()
