"""The OpenAPI document holds: whatever it allows is answered as it says (schemathesis)."""

import asyncio
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from services.api.access.guard import Access
from services.api.access.roles import role_of
from services.api.access.tokens import TokensFile
from services.api.replica import Replica
from services.api.routes.app import make_app
from services.api.web.server import listen, serve
from tests.broker import free_port
from tests.patience import until
from tests.unit.api.test_partitions_running import two  # noqa: F401 - the fixture
from tests.unit.api.test_routes import system as running  # noqa: F401 - the fixture

ROOT = Path(__file__).parents[3]
EXAMPLES = 3
AUTHORIZED = ("--header", "Authorization: Bearer secret")


async def _until_up(url):
    async with httpx.AsyncClient() as client:

        async def answers():
            with suppress(httpx.ConnectError):
                return await client.get(f"{url}/health/live")

        await until(answers, "the server")


@pytest.mark.parametrize(
    ("asks", "phases"),
    [
        pytest.param(False, "examples,fuzzing", id="asks nobody"),
        pytest.param(
            True, "examples,coverage,fuzzing", id="asks who it is", marks=pytest.mark.long
        ),
    ],
)
async def test_schemathesis_finds_nothing(two, asks, phases, tmp_path):  # noqa: F811
    """There are two partitions. The edges of what a schema allows, and what it does not, are tried where
    it asks who it is: what is behind that is the same. Where it asks, a route that answers without a token, or with a wrong one, is found."""
    cluster, port = two.cluster, free_port()
    (tmp_path / "tokens").write_text(f"all operate {sha256(b'secret').hexdigest()}")
    access = Access([TokensFile(tmp_path / "tokens")] if asks else [])
    replica = Replica(lambda: cluster.running["api"].host, lambda: cluster.api)
    app = make_app(replica, access=access)
    server = asyncio.create_task(serve(app, listen("127.0.0.1", port)))
    url = f"http://127.0.0.1:{port}"
    try:
        await _until_up(url)
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).parent / "schemathesis", "run", f"{url}/openapi.json",
            "--no-color", "--max-examples", str(EXAMPLES), "--generation-deterministic",
            "--phases", phases, *AUTHORIZED[: 2 * asks],
            cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
    text = out.decode()
    assert process.returncode == 0, text[-5000:]
    assert "Tested: " in text


async def test_every_operation_says_what_it_returns_and_what_an_error_looks_like(running):  # noqa: F811
    document = (await running.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation.get("summary"), where
            assert "default" in operation["responses"], where
            named = {item["name"] for item in operation["parameters"] if item["in"] == "path"}
            assert named == set(_parameters(path)), where


def _parameters(path):
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def test_every_operation_says_its_role_and_asks_for_a_token_where_one_is_needed():
    asks, asks_nobody = make_app(None, access=Access([object()])), make_app(None)
    for path, methods in asks.openapi()["paths"].items():
        for method, operation in methods.items():
            role = role_of(method.upper(), path)
            assert operation["x-role"] == role.label
            assert ("security" in operation) is bool(role)
            assert "security" not in asks_nobody.openapi()["paths"][path][method]
