"""What the specs of the configuration have beside them: ConfigMaps that change, by every key."""

from tests.integration.kubernetes.yunikorn.preemption import leaf, tree
from tests.integration.kubernetes.yunikorn.rows import spec
from tests.kubernetes.stack import Object, Stack


async def queues_of(stack: Stack) -> list[str]:
    """Return the queues below the root."""
    found = await stack.ws("partition/default/queues")
    return sorted(child["queuename"] for child in found.get("children") or ())


async def _extra(stack: Stack) -> Object:
    answer = await stack.http.get("/ws/v1/config", headers={"Accept": "application/json"})
    return dict(answer.json()["Extra"])


@spec
async def service_keys_are_shown(stack: Stack) -> None:
    """What stands beside the queues is what REST calls extra; another value restarts nothing."""
    await stack.begin(tree(leaf("one")))
    epoch = stack.muster.world.epoch
    for level in ("DEBUG", "WARN"):
        keys = {"log_level": level, "kubernetes_qps": "100", "service_schedulingInterval": "5s"}
        await stack.configure(tree(leaf("one")), **keys)
        await stack.passes(2)
        extra = await _extra(stack)
        for key, text in keys.items():
            assert extra[key.replace("_", ".")] == text
    assert stack.muster.world.epoch == epoch
    text = (await stack.http.get("/ws/v1/config")).text
    assert "log.level: WARN" in text
    shown = (await stack.http.get("/v1/config")).json()
    assert any(text.startswith("kubernetes.qps has no effect") for text in shown["warnings"])


@spec
async def a_service_key_that_cannot_be_read(stack: Stack) -> None:
    await stack.begin(tree(leaf("one")))
    await stack.configure(tree(leaf("two")), service_dispatchTimeout="soon")
    await stack.passes(12)
    assert await queues_of(stack) == ["root.one"]
    await stack.configure(tree(leaf("two")), service_dispatchTimeout="10m")
    await stack.passes(12)
    assert await queues_of(stack) == ["root.two"]


@spec
async def hot_refresh_is_turned_off(stack: Stack) -> None:
    """The update that turns it off is the last that takes effect until a restart."""
    await stack.begin(tree(leaf("one")))
    await stack.configure(tree(leaf("two")), service_enableConfigHotRefresh="false")
    await stack.passes(12)
    assert await queues_of(stack) == ["root.two"]
    for text in ("false", "true"):
        await stack.configure(tree(leaf("three")), service_enableConfigHotRefresh=text)
        await stack.passes(12)
        assert await queues_of(stack) == ["root.two"]
    await stack.restart()
    assert await queues_of(stack) == ["root.three"]
