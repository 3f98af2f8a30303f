"""GPU devices in the answers: which ones a pod was given, what is missing, and what is over."""

from services.api.why.standing import why
from shared.messages.interface import Allocation
from shared.model.gpus import GPU, GPU_SHARE
from tests.unit.api.following import System


def system(*gpus):
    made = System()
    for at, number in enumerate(gpus):
        made.node(f"n{at}", vcore=10_000, **{GPU: number})
    made.application("app")
    return made


def sentence(core, name):
    found = why(core.model, name)
    assert found is not None
    return found.sentence


async def pods(core):
    return {pod["name"]: pod for pod in (await core.get("/v1/pods?application=app")).json()["pods"]}


async def test_a_pods_devices_are_said_of_one_and_of_many():
    core = system(8, 8)
    core.asks("app", ["share"], {"vcore": 1, GPU_SHARE: 400})
    core.asks("app", [f"whole{at}" for at in range(14)], {"vcore": 1, GPU: 1})
    assert sentence(core, "share") == "pod share runs on n0, GPU 0:400."
    shown = await pods(core)
    assert shown["share"]["devices"] == "0:400"
    whole = {(shown[name]["nodeID"], shown[name]["devices"]) for name in shown if name != "share"}
    assert len(whole) == 14
    assert ("n0", "0") not in whole


async def test_who_has_no_devices_says_none():
    core = system(1)
    core.asks("app", ["cpu"], {"vcore": 1})
    assert "devices" not in (await pods(core))["cpu"]
    assert sentence(core, "cpu") == "pod cpu runs on n0."


async def test_what_the_nearest_node_lacks_is_told_by_device():
    core = system(2)
    core.asks("app", ["a", "b"], {"vcore": 1, GPU_SHARE: 600})
    core.asks("app", ["c"], {"vcore": 1, GPU_SHARE: 500})
    text = sentence(core, "c")
    assert "the only node does not have enough free now" in text
    assert "lacks 0.1 GPU shares" in text
    core.asks("app", ["d"], {"vcore": 1, GPU: 2})
    assert "lacks 2 GPUs" in sentence(core, "d")


async def test_a_device_of_which_more_was_given_than_there_is_fails_the_health_check():
    core = system(2)
    assert (await core.get("/ws/v1/scheduler/healthcheck")).json()["Healthy"]
    for key in ("a", "b"):
        pod = Allocation(key, "app", "n0", {"vcore": 1, GPU_SHARE: 600}, devices=((0, 600),))
        core.update(allocations=(pod,))
    answer = (await core.get("/ws/v1/scheduler/healthcheck")).json()
    assert not answer["Healthy"]
    assert any("[n0]" in check["DiagnosisMessage"] for check in answer["HealthChecks"])
