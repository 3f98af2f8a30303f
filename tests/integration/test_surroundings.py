"""What the tests use of the machine they run on: a broker, a Docker engine, a real API server."""

import http.server
import threading

import pytest

from tests import broker
from tests.kubernetes.real import ApiServerUnavailableError, real_access


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
