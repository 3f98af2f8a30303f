"""What the tests use of the machine they run on: a broker, a Docker engine, a real API server."""

import http.server
import threading

import pytest

from tests import broker
from tests.kubernetes.real import ApiServerUnavailableError, Binaries, real_access
from tests.patience import until


class _NoImages(http.server.BaseHTTPRequestHandler):
    """A Docker engine that answers, has no image and can pull none."""

    def do_GET(self):
        if self.path.endswith(("/_ping", "/version")):
            self._answer(200, b'{"ApiVersion": "1.44", "MinAPIVersion": "1.24"}')
        else:
            self._answer(404, b'{"message": "No such image"}')

    def do_POST(self):
        self._answer(500, b'{"message": "no route to the registry"}')

    def _answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def no_images(monkeypatch):
    """Let a Docker engine answer that has no images, and nothing else be had."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _NoImages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
    for name in ("KUBECONFIG", "KUBEBUILDER_ASSETS"):
        monkeypatch.delenv(name, raising=False)
    broker.image_missing.cache_clear()
    yield
    broker.image_missing.cache_clear()
    server.shutdown()
    server.server_close()
    thread.join()


def test_without_an_image_the_broker_is_a_private_process(no_images, monkeypatch, tmp_path):
    server = tmp_path / "rabbitmq-server"
    server.touch()
    monkeypatch.setattr(broker, "SERVER", server)
    assert isinstance(broker.own_broker(), broker.PrivateBroker)


def test_without_an_image_and_a_server_it_is_said_what_to_install(no_images, monkeypatch, tmp_path):
    monkeypatch.setattr(broker, "SERVER", tmp_path / "none")
    with pytest.raises(broker.BrokerUnavailableError) as caught:
        broker.own_broker()
    for text in ("cannot be pulled", "no route to the registry", "RABBITMQ_URL", "apt-get install"):
        assert text in str(caught.value)


def test_a_real_api_server_is_only_started_when_it_is_asked_for(no_images):
    with real_access(is_asked=False) as access:
        assert access is None
    with (
        pytest.raises(ApiServerUnavailableError, match=r"rancher/k3s.* cannot be pulled"),
        real_access(is_asked=True),
    ):
        pass


def test_a_folder_without_an_api_server_is_refused_and_not_passed_over(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with (
        pytest.raises(ApiServerUnavailableError, match="no kube-apiserver in it"),
        real_access(is_asked=False),
    ):
        pass


STAND_IN = """#!/bin/sh
trap 'echo ended $(basename $0) >> "{ended}"; exit 0' TERM
echo started >> "{ended}.$(basename $0)"
while :; do sleep 0.05; done
"""


async def test_an_api_server_is_stopped_before_its_etcd_also_when_etcd_was_started_later(tmp_path):
    ended = tmp_path / "ended"
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).write_text(STAND_IN.format(ended=ended))
        (tmp_path / name).chmod(0o755)
    binaries = Binaries(tmp_path)
    starts = {"etcd": 1, "kube-apiserver": 1}
    for name in starts:
        binaries.start(name)
    await until(lambda: _started(ended) == starts, "both run")
    binaries.kill("etcd")
    binaries.start("etcd")
    await until(lambda: _started(ended) == {**starts, "etcd": 2}, "etcd runs again")
    binaries.__exit__()
    assert ended.read_text().split("\n") == ["ended kube-apiserver", "ended etcd", ""]


def _started(ended):
    found = {name: ended.with_name(f"ended.{name}") for name in ("etcd", "kube-apiserver")}
    return {name: len(p.read_text().split()) if p.exists() else 0 for name, p in found.items()}
