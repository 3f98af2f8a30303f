"""A page of another origin reads and changes nothing, but where the operator says so."""

import pytest
from fastapi import FastAPI, Request
from httpx import ASGITransport, AsyncClient

from services.api.web.answers import answer
from services.api.web.browsers import OnlyOurPages

HOST = "127.0.0.1:9080"
YAML = {"content-type": "application/yaml"}


@pytest.fixture
async def page():
    """Return what sends a request; the answer's body lists the requests that were carried out."""
    app, done = FastAPI(), []
    app.add_middleware(OnlyOurPages, names=("Muster.Example.org",))

    @app.api_route("/{path:path}", methods=["GET", "HEAD", "OPTIONS", "POST", "DELETE", "PUT"])
    async def anything(request: Request):
        done.append(request.method)
        return answer(request, {"done": request.method})

    async with AsyncClient(transport=ASGITransport(app), base_url=f"http://{HOST}") as client:
        client.done = done
        yield client


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1"}, 403),  # another port is another origin
        ({"origin": "http://["}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
        ({"host": "evil.example:9080"}, 421),
        ({"host": ""}, 421),
        ({"host": "[::1"}, 421),
        ({"host": "a b"}, 421),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "Text/Plain;charset=UTF-8"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_what_a_stranger_s_page_sends_is_refused_with_a_sentence(
    page, method, headers, status
):
    answered = await page.request(method, "/v1/x", headers={**YAML, **headers})
    assert (answered.status_code, page.done) == (status, [])
    assert answered.json()["message"]
    assert not [name for name in answered.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"content-type": ""},
        {"host": "localhost"},
        {"host": "[::1]:9080", "origin": "http://[::1]:9080"},
        {"host": "muster-api"},
        {"host": "api.muster.svc.cluster.local:9080"},
        {"host": "muster.example.org", "origin": "https://muster.example.org"},
    ],
)
async def test_our_own_page_and_programs_may_change_things_and_no_other_may_read_the_answer(
    page, headers
):
    answered = await page.post("/v1/x", headers={**YAML, **headers})
    assert (answered.status_code, page.done) == (200, ["POST"])
    assert "access-control-allow-origin" not in answered.headers


@pytest.mark.parametrize("path", ["/ws/v1/queues", "/v1/applications", "/v1/live", "/metrics"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "http://localhost:9889"}, 403),  # a page of another program of this machine
        ({"origin": "http://127.0.0.1"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 421),
        ({"host": "evil.example:9080"}, 421),
        ({"host": ""}, 421),
    ],
)
async def test_nor_is_it_answered_what_it_only_reads(page, path, headers, status):
    for method in ("GET", "OPTIONS", "HEAD"):
        answered = await page.request(method, path, headers=headers)
        assert (answered.status_code, page.done) == (status, [])
        assert not [name for name in answered.headers if name.startswith("access-control")]
    assert (await page.get("/health/ready", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": f"http://{HOST}"},
        {"origin": "https://muster.example.org:8443"},  # YuniKorn's web client, at its own port
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},  # a link to the page
        {"host": "muster.example.org"},
    ],
)
async def test_reading_from_where_the_operator_says_keeps_yunikorn_s_headers(page, headers):
    for path in ("/ws/v1/queues", "/v1/applications"):
        answered = await page.get(path, headers=headers)
        assert answered.headers["access-control-allow-origin"] == "*"
    judged = await page.post("/ws/v1/validate-conf", headers=headers)
    assert judged.headers["access-control-allow-origin"] == "*"


async def test_a_name_with_a_port_is_that_port_s_alone():
    app = FastAPI()
    app.add_middleware(OnlyOurPages, names=("web.example:9889",))
    app.get("/x")(lambda: "")
    async with AsyncClient(transport=ASGITransport(app), base_url=f"http://{HOST}") as client:
        for port, status in ((9889, 200), (9890, 403)):
            headers = {"origin": f"http://web.example:{port}"}
            assert (await client.get("/x", headers=headers)).status_code == status
