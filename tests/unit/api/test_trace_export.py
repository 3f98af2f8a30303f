"""The spans that a collector gets are the tree that the API shows."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from services.api.views.trace import trace_entries
from shared.messages.commands import SubmitApplication
from shared.messages.envelope import CORE, SHIM_ADAPTER, Envelope, Outgoing
from shared.messages.interface import AddApplicationRequest, UpdateRequest
from shared.runtime import telemetry
from shared.runtime.telemetry import Tap
from tests.unit.api.test_trace import lived

THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector:
    """Takes spans as a collector does; what is no protobuf of spans it refuses."""

    def __init__(self):
        self.spans: list[tuple[str, Span]] = []
        told = self.spans

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                is_good = self.headers["Content-Type"] == "application/x-protobuf"
                if is_good and self.path == "/v1/traces":
                    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                        names = {a.key: a.value.string_value for a in resource.resource.attributes}
                        for scope in resource.scope_spans:
                            told.extend((names["service.name"], span) for span in scope.spans)
                self.send_response(200 if is_good else 415)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector(monkeypatch):
    collector = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    yield collector
    collector.close()


async def test_a_collector_gets_the_tree_that_the_api_shows(collector):
    stories = await lived()
    telemetry.flush_spans()
    for name in ("gang", "owed"):
        entries = trace_entries(stories.of(name), name)
        spans = {
            span.span_id.hex(): (service, span)
            for service, span in collector.spans
            if span.trace_id.hex() == entries[0]["traceID"]
        }
        shown = {entry["spanID"]: entry for entry in entries}
        assert shown.keys() <= spans.keys()
        for span_id, entry in shown.items():
            service, span = spans[span_id]
            assert span.parent_span_id.hex() == entry["parentSpanID"]
            if entry["message"] == "submission":
                assert span.name == "submission"
                continue
            assert span.name == f"{entry['to']} {entry['message']}"
            assert service == f"muster-{entry['to']}"
            said = {a.key: a.value.string_value for a in span.attributes}
            assert said["muster.decision"] == entry["decision"]
            assert said["muster.reason"] == entry["reason"]
        parts = [span for span_id, (_, span) in spans.items() if span_id not in shown]
        assert {span.name for span in parts} <= {"wait", "handling"}
        assert {span.parent_span_id.hex() for span in parts} == shown.keys() - {
            entries[0]["spanID"]
        }


async def test_an_eviction_is_linked_to_what_led_to_it_in_another_trace(collector):
    entries = trace_entries((await lived()).of("gang"), "gang")
    telemetry.flush_spans()
    (evicted,) = (e for e in entries if "PREEMPTED_BY" in e["decision"] and e["from"] == "core")
    all_of = {(s.trace_id.hex(), s.span_id.hex()): s for _, s in collector.spans}
    links = [
        all_of[link.trace_id.hex(), link.span_id.hex()]
        for link in all_of[evicted["traceID"], evicted["spanID"]].links
    ]
    assert [link.name for link in links] == ["core TimerFirings"]
    assert links[0].trace_id.hex() != evicted["traceID"]


def test_the_submission_links_to_the_trace_of_whoever_submitted(collector):
    tap = Tap("shim_adapter", is_on=True)
    command = Envelope(
        "c", "SubmitApplication", SubmitApplication("app"), SHIM_ADAPTER, "api",
        traceparent=THEIRS, published_ns=5,
    )  # fmt: skip
    tap.handled(command, 3)
    said = Outgoing(CORE, UpdateRequest("rm", new_applications=(AddApplicationRequest("app"),)))
    tap.note_sent(said, [(said, command)], command)
    tap.close(9)
    telemetry.flush_spans()
    (root,) = (span for _, span in collector.spans if span.name == "submission")
    assert root.parent_span_id == b""
    assert [link.trace_id.hex() for link in root.links] == [THEIRS.split("-")[1]]
    assert (root.start_time_unix_nano, root.end_time_unix_nano) == (5, 12)
