"""A link does what the faults promise: without these a chaos run would break nothing."""

import socket
import threading

import pytest

from tests.chaos.links import Links

PATIENCE_SECONDS = 20


@pytest.fixture
def echo():
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(client):
        with client:
            while data := client.recv(1000):
                client.sendall(data)

    def serve():
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


@pytest.mark.parametrize("direction", ["up", "down"])
def test_what_is_said_on_a_stalled_link_arrives_when_it_is_mended(echo, direction):
    with Links() as links:
        port = links.add("one", echo)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
            client.sendall(b"before")
            assert client.recv(100) == b"before"
            links.stall("one", up=direction == "up", down=direction == "down")
            client.sendall(b"during")
            client.settimeout(0.3)
            with pytest.raises(TimeoutError):
                client.recv(100)
            links.mend("one")
            client.settimeout(PATIENCE_SECONDS)
            assert client.recv(100) == b"during"


def test_a_link_that_is_cut_ends_what_is_open_and_refuses_what_comes_until_it_is_mended(echo):
    with Links() as links:
        port = links.add("one", echo)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
            client.sendall(b"before")
            assert client.recv(100) == b"before"
            links.cut("one")
            assert is_over(client)
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
            assert is_over(client)
        links.mend("one")
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
            client.sendall(b"after")
            assert client.recv(100) == b"after"


def is_over(client):
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True
