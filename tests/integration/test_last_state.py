"""The broker is away: the API shows the last known state with its age, and stays reachable."""

import uuid

import httpx
import pytest

from tests.broker import free_port, own_broker
from tests.integration.processes import Deployment
from tests.integration.test_who_works import POD, command, ready


def health(port, path):
    return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=30).status_code


@pytest.mark.long
@pytest.mark.xdist_group("broker")
@pytest.mark.broker
@pytest.mark.limit(300, "a broker of its own starts and ends, services are processes")
def test_while_the_broker_is_away_its_pod_is_ready_and_the_last_state_is_shown(tmp_path):
    """An orchestrator sends clients to what is ready at the health port: to nobody, where none is."""
    port = free_port()
    with own_broker() as broker:
        deployment = Deployment(
            broker.url, tmp_path, f"last-{uuid.uuid4().hex[:8]}", MUSTER_POD_RUN_SECONDS="0"
        )
        try:
            for service in ("core", "timers", "shim_adapter"):
                deployment.start(service)
            deployment.start("api", MUSTER_HEALTH_PORT=str(port))
            deployment.wait(lambda: ready(deployment)[0] == 200, "all work")
            deployment.submit(POD)
            deployment.wait(lambda: deployment.application("one")["running"] == 1, "it runs")
            assert health(port, "/health/ready") == 200
            broker.kill()
            away = "the broker has been away for "  # services may be missed before it is
            deployment.wait(lambda: ready(deployment)[1].startswith(away), "the broker is missed")
            assert ready(deployment)[0] == 503
            assert health(port, "/health/ready") == 200
            answered = httpx.get(f"{deployment.url}/v1/applications/one", timeout=30)
            assert answered.json()["running"] == 1
            assert answered.headers["muster-away"].startswith(away)
            assert int(answered.headers["muster-state-age"]) >= 0
            status, out, error = command(deployment, "apps")
            assert "one" in out
            assert "last known state" in error
            assert status == 3
        finally:
            deployment.stop()


@pytest.mark.broker
def test_a_replica_that_never_had_a_state_is_not_ready(broker_url, tmp_path):
    port = free_port()
    deployment = Deployment(broker_url, tmp_path, f"none-{uuid.uuid4().hex[:8]}")
    try:
        deployment.start("api", MUSTER_HEALTH_PORT=str(port))
        deployment.wait(lambda: health(port, "/health/live") == 200, "it runs")
        deployment.wait(lambda: ready(deployment)[0] == 503, "it serves")
        assert health(port, "/health/ready") == 503
    finally:
        deployment.stop()
