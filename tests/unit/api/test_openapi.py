"""The OpenAPI document holds: whatever it allows is answered as it says (schemathesis)."""

import asyncio
import sys
from pathlib import Path

import httpx

from services.api.replica import Replica
from services.api.routes import make_app
from services.api.server import listen, serve
from tests.broker import free_port
from tests.unit.api.test_routes import system as running  # noqa: F401 - the fixture

ROOT = Path(__file__).parents[3]
EXAMPLES = 3


async def _until_up(url):
    async with httpx.AsyncClient() as client:
        for _ in range(500):
            try:
                await client.get(f"{url}/health/live")
            except httpx.ConnectError:
                await asyncio.sleep(0.02)
            else:
                return
    raise AssertionError("nobody listens")


async def test_schemathesis_finds_nothing(running):  # noqa: F811
    cluster, port = running.cluster, free_port()
    app = make_app(Replica(lambda: cluster.running["api"].host, lambda: cluster.api))
    server = asyncio.create_task(serve(app, listen("127.0.0.1", port)))
    url = f"http://127.0.0.1:{port}"
    try:
        await _until_up(url)
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).parent / "schemathesis", "run", f"{url}/openapi.json",
            "--no-color", "--max-examples", str(EXAMPLES), "--generation-deterministic",
            "--phases", "examples,coverage,fuzzing",
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
