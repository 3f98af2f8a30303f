"""Standbys and replicas: a second core takes over, a paused one does no harm, replicas agree."""

import signal
import uuid

import pytest

from tests.broker import free_port
from tests.integration.processes import HTTP, Deployment
from tests.integration.test_kill import MEMBERS, all_ran, gang_of

pytestmark = pytest.mark.xdist_group("restarts")


def test_a_standby_core_takes_over_and_every_api_replica_answers(broker_url, tmp_path):
    deployment = Deployment(broker_url, tmp_path, f"scale-{uuid.uuid4().hex[:8]}")
    try:
        deployment.start_all()
        deployment.start("core", "core-standby")
        deployment.start("timers", "timers-standby")
        port = free_port()
        deployment.start("api", "api-2", MUSTER_HTTP_PORT=str(port))
        deployment.submit(gang_of("gang"))
        deployment.wait(lambda: deployment.has_held("gang", MEMBERS), "all held")
        deployment.kill("core")
        deployment.kill("timers")
        deployment.wait(lambda: all_ran(deployment, "gang"), "the standby finished the gang")
        second = f"http://127.0.0.1:{port}/v1/applications/gang"
        deployment.wait(
            lambda: HTTP.get(second).json()["state"] in ("Completing", "Completed"),
            "the second replica knows",
        )
        deployment.wait(
            lambda: deployment.application("gang")["state"] == "Completed",
            "the standby's timer fires",
        )
    finally:
        deployment.stop()


@pytest.mark.long
def test_a_core_that_was_paused_past_its_turn_does_no_harm(broker_url, tmp_path):
    deployment = Deployment(broker_url, tmp_path, f"pause-{uuid.uuid4().hex[:8]}")
    try:
        deployment.start_all()
        deployment.start("core", "core-standby")
        deployment.submit(gang_of("gang"))
        deployment.wait(lambda: deployment.has_held("gang", MEMBERS), "all held")
        deployment.processes["core"].send_signal(signal.SIGSTOP)
        deployment.wait(lambda: all_ran(deployment, "gang"), "the standby finished the gang")
        deployment.processes["core"].send_signal(signal.SIGCONT)
        deployment.submit(gang_of("again"))
        deployment.wait(
            lambda: deployment.application("again")["state"] in ("Completing", "Completed"),
            "the next gang runs to its end",
        )
        for node in deployment.get("/ws/v1/partition/default/nodes"):
            assert node.get("allocated", {}).get("vcore", 0) <= node["capacity"]["vcore"]
    finally:
        deployment.stop()
