"""A program that answers as an API does, and `muster` typed at it, on a terminal or in a pipe."""

import contextlib
import io
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from tools import main as program


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self) -> bool:
        return True


class Api(ThreadingHTTPServer):
    """Answers by method and path, with its query or without; whatever else is asked is YuniKorn's 404."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, str, bytes]] = {}
        self.asked: list[str] = []
        self.keys: list[str] = []  # each request's Idempotency-Key, "" where it has none
        self.tokens: list[str] = []  # each request's Authorization, "" where it has none
        self.loses = 0  # so many requests are heard, and their connection ends unanswered

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def says(self, what: str, value: object, status: int = 200) -> None:
        self.answers[what] = (status, "application/json", json.dumps(value).encode())

    def says_text(self, what: str, text: str, status: int = 200, kind: str = "text/html") -> None:
        self.answers[what] = (status, kind, text.encode())


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        size = int(self.headers.get("Content-Length") or 0)
        self.server.body = self.rfile.read(size)
        self.server.keys.append(self.headers.get("Idempotency-Key", ""))
        self.server.tokens.append(self.headers.get("Authorization", ""))
        if self.server.loses:
            self.server.loses -= 1
            return
        what = f"{self.command} {urlsplit(self.path).path}"
        nothing = (404, "text/plain", b"404 page not found\n")
        of_path = self.server.answers.get(what, nothing)
        status, kind, body = self.server.answers.get(f"{self.command} {self.path}", of_path)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - the base class's names

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api():
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def muster(api, monkeypatch):
    """Return what types a command line: `muster("apps", width=80)`; no width is a pipe."""

    def run(*arguments: str, width: int = 0, term: str = "dumb"):
        out, err = (Terminal() if width else io.StringIO()), io.StringIO()
        with monkeypatch.context() as patched, contextlib.ExitStack() as stack:
            patched.setenv("MUSTER_API_URL", api.url)
            patched.setenv("TERM", term)
            patched.setenv("NO_COLOR", "1")
            patched.setenv("COLUMNS", str(width or 80))
            patched.setenv("TZ", "UTC")
            patched.setattr(sys, "argv", ["muster", *arguments])
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(err))
            try:
                program.main()
                status = 0
            except SystemExit as stop:
                status = stop.code or 0
        lines = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
        return SimpleNamespace(out=lines, err=err.getvalue(), status=status)

    return run
