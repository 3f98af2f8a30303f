"""The tap and its way to OpenTelemetry."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from shared.messages.envelope import CORE, SHIM_ADAPTER, Envelope, Outgoing
from shared.messages.interface import (
    AllocationAsk,
    AllocationRelease,
    TerminationType,
    UpdateRequest,
    UpdateResponse,
)
from shared.messages.protocol import Heartbeat
from shared.messages.trace import trace_id
from shared.runtime import telemetry
from shared.runtime.telemetry import Tap

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def handled(tap):
    ask = AllocationAsk("k", "app", {"vcore": 1}, placeholder=True)
    envelope = Envelope(
        "id",
        "UpdateRequest",
        UpdateRequest("rm", asks=(ask,)),
        CORE,
        "shim_adapter",
        traceparent=PARENT,
        published_ns=5,
    )
    release = AllocationRelease("app", "k", TerminationType.TIMEOUT)
    answer = Outgoing(SHIM_ADAPTER, UpdateResponse(released_allocations=(release,)))
    tap.handled(envelope, 3)
    tap.note_sent(answer, [(answer, envelope)], envelope)
    tap.close(12)


def test_a_record_says_what_came_how_long_it_waited_and_what_was_decided():
    tap = Tap("core", is_on=True)
    handled(tap)
    tap.handled(Envelope("h", "Heartbeat", Heartbeat("x"), CORE, "core"), 1)
    tap.close(1)
    (record,) = tap.take()
    assert tap.take() == ()
    assert (record.source, record.destination, record.queued_ns, record.handled_ns) == (
        "shim_adapter",
        "core",
        7,
        3,
    )
    assert record.applications == ("app",)
    assert record.contents == ("1 ask (placeholder)",)
    assert record.decisions == ("to shim_adapter: 1 released allocation TIMEOUT",)


def test_records_are_told_when_they_are_due_or_when_there_are_many(monkeypatch):
    tap = Tap("core", is_on=True, hold_ns=100)
    handled(tap)
    handled(tap)
    assert (tap.due_ns, tap.take_due(111)) == (112, ())
    assert (len(tap.take_due(112)), tap.due_ns, tap.take_due(500)) == (2, None, ())
    monkeypatch.setattr(telemetry, "MANY_RECORDS", 1)
    handled(tap)
    assert len(tap.take_due(13)) == 1


def test_records_beyond_the_limit_are_dropped_and_counted(monkeypatch):
    monkeypatch.setattr(telemetry, "MAX_RECORDS", 2)
    tap = Tap("core", is_on=True)
    for _ in range(5):
        handled(tap)
    assert (len(tap.take()), tap.dropped) == (2, 3)


def test_spans_reach_a_collector_when_an_endpoint_is_configured(monkeypatch):
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        tap = Tap("core", is_on=True)
        handled(tap)
        assert tap._spans is not None
        telemetry.flush_spans()
    finally:
        server.shutdown()
        server.server_close()
    body = b"".join(bodies)
    assert bytes.fromhex(trace_id("app")) in body
    assert b"core UpdateRequest" in body
    assert b"muster-core" in body
