"""Who did what is written down, a line each, and nothing that is secret."""

import json

import httpx
import pytest
from starlette.requests import Request

from services.api.access import audit
from services.api.access.guard import Access
from services.api.access.tokens import TokensFile
from services.api.replica import Replica
from services.api.routes.app import make_app
from shared.bus.base import DeadLetter
from shared.runtime.logs import set_up_logs
from tests.unit.api.test_access import bearer, lines
from tests.unit.api.test_routes import GANG
from tests.unit.api.test_routes import system as running  # noqa: F401 - the fixture

YAML = {"content-type": "application/yaml"}


@pytest.fixture
async def audited(running, tmp_path, capsys):  # noqa: F811
    """Return a client, and what reads the lines that came since they were read last."""
    (tmp_path / "tokens").write_text(lines("read", "submit", "operate"))
    cluster = running.cluster
    replica = Replica(lambda: cluster.running["api"].host, lambda: cluster.api)
    app = make_app(replica, access=Access([TokensFile(tmp_path / "tokens")]))
    set_up_logs("json", "error")
    transport = httpx.ASGITransport(app, client=("192.0.2.7", 4711))
    async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:
        client.told = lambda: [
            item
            for item in map(json.loads, capsys.readouterr().err.splitlines())
            if item.pop("logger") == "muster.audit" and item.pop("timestamp") and item.pop("level")
        ]
        client.cluster = cluster
        client.broker = running.broker
        yield client


async def test_what_somebody_did_is_a_line_with_who_and_from_where_and_what_became_of_it(audited):
    await audited.post("/v1/manifests", content=GANG, headers=bearer("submit") | YAML)
    assert audited.told() == [
        {
            "event": "request",
            "who": "submit-er",
            "role": "submit",
            "from": "192.0.2.7",
            "method": "POST",
            "path": "/v1/manifests",
            "status": 200,
            "what": "manifests of gang",
        }
    ]
    await audited.delete("/v1/applications/gang", headers=bearer("operate"))
    await audited.delete("/v1/applications/nobody", headers=bearer("operate"))
    await audited.post("/v1/config", content="{", headers=bearer("operate") | YAML)
    told = [(line["who"], line["path"], line["status"]) for line in audited.told()]
    assert told == [
        ("operate-er", "/v1/applications/gang", 200),
        ("operate-er", "/v1/applications/nobody", 404),
        ("operate-er", "/v1/config", 422),
    ]


async def test_what_becomes_of_dead_letters_is_a_line_with_their_names(audited):
    dead = "/v1/dead-letters"
    operate = bearer("operate")
    for number in range(2):
        letter = DeadLetter("core.default", "Heartbeat", f"n-{number}", "because", b"secret")
        audited.broker.dead_letters.append(letter)
    await audited.get(dead, headers=bearer("read"))
    assert audited.told() == []
    assert (await audited.get(f"{dead}/n-0", headers=bearer("submit"))).status_code == 403
    await audited.get(f"{dead}/n-0", headers=operate)
    await audited.post(f"{dead}/n-0/replay", headers=operate)
    await audited.delete(f"{dead}?reason=because", headers=operate)
    told = [(line["status"], line.get("what")) for line in audited.told()]
    assert told == [
        (403, None),
        (200, "dead letter n-0"),
        (409, "replay of dead letters n-0"),
        (200, "drop of dead letters n-0, n-1"),
    ]


async def test_what_was_refused_is_a_line_and_what_was_only_read_is_none(audited):
    await audited.get("/v1/queues", headers=bearer("read"))
    await audited.post("/v1/what-if", content="{}", headers=bearer("read"))
    await audited.get("/health/live")
    assert audited.told() == []
    await audited.get("/v1/queues")
    await audited.get("/v1/queues", headers={"Authorization": "Bearer a-secret-of-somebody"})
    await audited.delete("/v1/applications/x", headers=bearer("read"))
    await audited.delete(
        "/v1/applications/x", headers=bearer("operate") | {"origin": "https://evil.example"}
    )
    told = audited.told()
    assert [(line["who"], line["status"]) for line in told] == [
        ("", 401),
        ("", 401),
        ("read-er", 403),
        ("", 403),  # a stranger's page: nobody was asked
    ]
    assert "secret" not in str(told)


async def test_a_request_without_an_answer_is_a_line_too(audited, monkeypatch):
    async def breaks(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(Replica, "ask", breaks)
    with pytest.raises(RuntimeError, match="a bug"):
        await audited.delete("/v1/applications/x", headers=bearer("submit"))
    (line,) = audited.told()
    assert (line["who"], line["status"]) == ("submit-er", 0)


async def test_what_is_long_is_cut_and_what_breaks_lines_breaks_none(audited):
    await audited.delete("/v1/applications/" + "x" * 5_000, headers=bearer("submit"))
    await audited.delete("/v1/applications/a%0A%7B%22who%22:%22b%22%7D", headers=bearer("submit"))
    told = audited.told()
    assert [len(line["path"]) for line in told] == [audit.MAX_PATH, 30]
    assert {line["who"] for line in told} == {"submit-er"}


async def test_whoever_names_nobody_fills_no_disk_and_keeps_nobody_out_of_the_log(
    audited, monkeypatch
):
    for _ in range(audit.MAX_UNKNOWN + 30):
        await audited.get("/v1/queues")
    await audited.delete("/v1/applications/x", headers=bearer("read"))
    told = audited.told()
    assert len(told) == audit.MAX_UNKNOWN + 1
    assert told[-1]["who"] == "read-er"
    monkeypatch.setattr(audit, "_MINUTE_SECONDS", 0.0)
    await audited.get("/v1/queues")
    (line,) = audited.told()
    assert line["left_out"] == 30


def test_of_many_names_the_first_are_told():
    request = Request({"type": "http"})
    audit.note(request, "manifests of", [str(number) for number in range(25)])
    told = request.state.what
    assert told.endswith("18, 19, … and 5 more")
