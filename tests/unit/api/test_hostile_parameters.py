"""No parameter of any route, whatever is in it, is more than a mistake of whoever sends it."""

from urllib.parse import quote

import httpx

from services.api.replica import Replica
from services.api.routes.app import make_app
from shared.model.numbers import parse_uint64
from tests.unit.api.test_routes import system  # noqa: F401 - the fixture

DIGITS = "9" * 5_000
HOSTILE = (
    "", " ", "\0", "%", "%00", "%ff%fe", "\ud7ff", "\U0001f600", "/", "//", "..", ".", "a.b.c", "*",
    DIGITS, f"-{DIGITS}", f"+{DIGITS}", "-1", "+1", "0", "00", "1e400", "-0", "0x1f", "1_000", "\u0661",
    "NaN", "Infinity", "1.5", str(2**63), str(2**64), str(-(2**63) - 1), "true", "null", "None",
    "2024-13-45", "2024-02-30T25:61:61Z", "x" * 5_000, "{", "[" * 3_000, "a,b", "'", '"', "\r\nX: y",
)  # fmt: skip
ENDLESS = ("/ws/v1/events/stream",)  # where a value holds, there is no end to its answer
GOOD = {"partition": "default", "queue": "root.a", "state": "active", "node": "node-0000"}


def attacks(document):
    """Yield every method and path with one hostile value at a time, as they go on the wire."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            for item in operation.get("parameters", ()):
                for value in HOSTILE:
                    if path in ENDLESS and (
                        not value or parse_uint64(value.lstrip("+ ")) is not None
                    ):
                        continue
                    yield method, _filled(path, item, value), _headers(item, value)
            if path in ENDLESS:
                continue
            for query in (
                "%00",
                "=",
                "&&&",
                "a=%ff%fe",
                "a=1&a=2",
                f"a={DIGITS}",
                "count=1&count=x",
            ):
                yield method, f"{_filled(path)}?{query}", {}


def _filled(path, item=None, value=""):
    given = {item["name"]: value} if item is not None else {}
    for name, good in {
        **GOOD,
        "user": "u",
        "group": "g",
        "application": "a",
        "name": "n",
        "letter": "l",
    }.items():
        path = path.replace("{%s}" % name, quote(given.get(name, good), safe="%"))
    assert "{" not in path, path
    if item is not None and item["in"] == "query":
        path += f"?{item['name']}={quote(value, safe='%')}"
    return path


def _headers(item, value):
    is_sendable = value.isascii() and value.isprintable()
    return {item["name"]: value} if item["in"] == "header" and is_sendable else {}


async def test_no_parameter_is_more_than_a_mistake(system):  # noqa: F811
    replica = Replica(lambda: system.cluster.running["api"].host, lambda: system.cluster.api)
    app = make_app(replica)
    found = {}
    transport = httpx.ASGITransport(app)  # an exception in a route comes through it
    async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:
        for method, path, headers in attacks(app.openapi()):
            answer = await client.request(method, path, headers=headers)
            found[answer.status_code] = found.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, (method, path[:200], answer.text[:200])
    assert min(found[200], found[400], found[404]) > 100, found
