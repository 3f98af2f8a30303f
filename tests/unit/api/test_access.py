"""Nobody does here what their token does not allow; every "no" says what would be needed."""

import asyncio
from contextlib import suppress
from hashlib import sha256

import httpx
import pytest
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from services.api.access import guard
from services.api.access.guard import MAX_TOKEN_BYTES, Access, Guard
from services.api.access.identity import Identity, KeysError
from services.api.access.roles import OF_ROUTES, Role
from services.api.access.tokens import MAX_TOKENS, TokensFile, read_tokens
from services.api.replica import Replica
from services.api.routes import live
from services.api.routes.app import make_app
from shared.runtime import watched
from tests.patience import patience
from tests.table import each_row
from tests.unit.api.test_routes import GANG, until
from tests.unit.api.test_routes import system as running  # noqa: F401 - the fixture

ROLES = ("read", "submit", "operate")


def hashed(token):
    return sha256(token.encode()).hexdigest()


def lines(*roles):
    return "".join(f"{role}-er {role} {hashed(f'the-{role}-token')}\n" for role in roles)


def bearer(role):
    return {"Authorization": f"Bearer the-{role}-token"}


@pytest.fixture
def tokens(tmp_path, monkeypatch):
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    path = tmp_path / "tokens"
    path.write_text("# who may\n\n" + lines(*ROLES))
    return path


@pytest.fixture
async def guarded(running, tokens):  # noqa: F811
    """Return a client of a whole system whose API asks who somebody is."""
    cluster = running.cluster
    replica = Replica(lambda: cluster.running["api"].host, lambda: cluster.api)
    app = make_app(replica, access=Access([TokensFile(tokens)]))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:
        client.cluster = cluster
        yield client


def filled(path):
    return path.replace("{state}", "active").replace("{", "").replace("}", "")


async def test_no_route_answers_without_its_role(guarded):
    wrong = []
    for line, needed in OF_ROUTES.items():
        method, path = line.split()
        if path in ("/v1/live", "/ws/v1/events/stream"):
            continue  # answers without an end; below
        for role in (None, *Role):
            if role is Role.OPEN:
                continue
            headers = bearer(role.label) if role else {}
            answered = await guarded.request(method, filled(path), headers=headers)
            if not _is_right(answered, needed, role):
                wrong.append((line, role, answered.status_code, answered.text))
    assert wrong == []


def _is_right(answered, needed, role):
    """Tell whether somebody of a role was let in if so, and told what is missing if not."""
    if not needed or (role or 0) >= needed:
        return answered.status_code not in (401, 403)
    told = answered.headers["www-authenticate"]
    message = answered.json()["message"]
    names_it = f"the role {needed.label}" in message
    if role is None:
        is_asked = told == 'Bearer realm="muster"' and "--token" in message
        return answered.status_code == 401 and is_asked and names_it
    is_too_little = 'error="insufficient_scope"' in told and f'scope="{needed.label}"' in told
    return answered.status_code == 403 and is_too_little and names_it


async def test_an_application_and_its_pods_stay_until_somebody_who_may_deletes_them(guarded):
    submit, read = bearer("submit"), bearer("read")
    assert (await guarded.post("/v1/manifests", content=GANG)).status_code == 401
    assert (await guarded.post("/v1/manifests", content=GANG, headers=read)).status_code == 403
    await guarded.post("/v1/manifests", content=GANG, headers=submit)
    guarded.headers.update(read)
    at = "/v1/applications/gang"
    await until(guarded, at, lambda app: app.get("state") == "Running")
    guarded.headers.pop("authorization")
    assert (await guarded.delete(at)).status_code == 401
    assert (await guarded.delete(at, headers=read)).status_code == 403
    assert (await guarded.get(at, headers=read)).json()["state"] == "Running"
    assert (await guarded.delete(at, headers=submit)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/live", "/ws/v1/events/stream"])
async def test_streams_are_not_opened_for_nobody(guarded, path):
    assert (await guarded.get(path)).status_code == 401


NO_TOKENS = (
    "Bearer the-read-toke",
    "Bearer the-read-token2",
    "Bearer ",
    "Bearer",
    "bearer the read token",
    "Basic dXNlcjpwYXNz",
    "the-read-token",
    "Bearer " + "x" * (MAX_TOKEN_BYTES + 1),
    "Bearer tökén",
    "Bearer \t",
    f"Bearer {hashed('the-read-token')}",  # the file's own text lets nobody in
)


async def test_what_is_no_token_of_anybody_is_refused_and_not_repeated(guarded):
    for given in NO_TOKENS:
        headers = [(b"authorization", given.encode())]
        answered = await guarded.get("/v1/queues", headers=headers)
        assert answered.status_code == 401, given
        assert answered.headers["www-authenticate"].endswith('error="invalid_token"'), given
        said = given.partition(" ")[2].strip()
        assert not said or said not in answered.text


async def test_two_tokens_at_once_are_nobody_s(guarded):
    both = [("authorization", "Bearer the-read-token"), ("authorization", "Bearer the-read-token")]
    assert (await guarded.get("/v1/queues", headers=both)).status_code == 401


async def test_a_token_in_an_address_or_a_cookie_is_none(guarded):
    where = "/v1/queues?access_token=the-read-token&token=the-read-token"
    cookie = {"Cookie": "token=the-read-token; Authorization=Bearer the-read-token"}
    assert (await guarded.get(where, headers=cookie)).status_code == 401


async def test_what_is_not_there_is_told_to_nobody_and_a_path_in_other_letters_opens_nothing(
    guarded,
):
    assert (await guarded.get("/nowhere")).status_code == 401
    assert (await guarded.get("/nowhere", headers=bearer("read"))).status_code == 404
    for path in ("/V1/Config", "/v1/config/", "//v1/config"):
        assert (await guarded.post(path, headers=bearer("submit"))).status_code == 403


async def test_metrics_may_be_open_and_nothing_else_is_then(running, tokens):  # noqa: F811
    cluster = running.cluster
    replica = Replica(lambda: cluster.running["api"].host, lambda: cluster.api)
    app = make_app(replica, access=Access([TokensFile(tokens)], metrics=Role.OPEN))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:
        assert (await client.get("/metrics")).status_code == 200
        assert (await client.get("/ws/v1/metrics")).status_code == 200
        assert (await client.get("/v1/queues")).status_code == 401
        assert (await client.post("/metrics")).status_code == 401


async def test_a_token_that_is_taken_out_of_the_file_is_nobody_s_and_a_new_one_is_taken(
    guarded, tokens
):
    assert (await guarded.get("/v1/queues", headers=bearer("read"))).status_code == 200
    tokens.write_text(lines("submit"))
    assert (await guarded.get("/v1/queues", headers=bearer("read"))).status_code == 401
    other = tokens.with_name("other")
    other.write_text(lines("submit", "read"))
    other.rename(tokens)  # as a Secret's files are replaced
    assert (await guarded.get("/v1/queues", headers=bearer("read"))).status_code == 200


@pytest.mark.parametrize("text", ["", "half a line", None])
async def test_a_file_that_does_not_hold_changes_nothing(guarded, tokens, text):
    tokens.unlink() if text is None else tokens.write_text(text)
    assert (await guarded.get("/v1/queues", headers=bearer("read"))).status_code == 200
    assert (await guarded.get("/v1/queues", headers=bearer("reed"))).status_code == 401


@each_row(
    ("text", "said"),
    [
        ("", "no tokens"),
        ("ci submit", "line 1: expected NAME ROLE SHA256, found 2 words"),
        (f"ci submit {hashed('a')} x", "found 4 words"),
        (f"ci admin {hashed('a')}", "no role 'admin'; there are read, submit, operate"),
        (f"ci open {hashed('a')}", "no role 'open'"),
        ("# a\nci read abc", "line 2: a token's SHA-256 has 64"),
        (f"ci read {hashed('a').upper()}", "64 hexadecimal"),
        (f"c\x07i read {hashed('a')}", "a name has 1 to 100"),
        (f"{'c' * 101} read {hashed('a')}", "a name has 1 to 100"),
        (f"a read {hashed('a')}\nb operate {hashed('a')}", "one token has two lines"),
        ("".join(f"n{i} read {hashed(str(i))}\n" for i in range(MAX_TOKENS + 1)), "more than"),
    ],
)
def test_a_line_that_does_not_hold_is_named_without_its_hash(text, said):
    with pytest.raises(ValueError) as caught:
        read_tokens(text.encode())
    assert said in str(caught.value)
    assert hashed("a") not in str(caught.value)


def test_as_many_tokens_as_there_may_be_are_read():
    text = "".join(f"n{i} read {hashed(str(i))}\n" for i in range(MAX_TOKENS))
    assert len(read_tokens(text.encode())) == MAX_TOKENS


class Fickle:
    """Knows everybody until it is told not to."""

    def __init__(self):
        self.says = Identity("somebody", Role.READ)

    async def identify(self, token):
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


async def streamed(knows, monkeypatch):
    """Yield the parts of an answer without an end, as who asks gets them."""
    monkeypatch.setattr(guard, "AGAIN_SECONDS", 0.0)

    async def parts():
        for number in range(1_000):
            yield f"{number}\n".encode()
            await asyncio.sleep(0)

    app = Guard(StreamingResponse(parts()), Access([knows]))
    scope = {
        "type": "http", "method": "GET", "path": "/v1/live", "query_string": b"",
        "headers": [(b"authorization", b"Bearer x")], "asgi": {"spec_version": "2.4"},
    }  # fmt: skip
    sent = []

    async def send(message):
        if message["type"] == "http.response.body":
            sent.append(message)
            if len(sent) == 5:
                knows.says = knows.then

    async def receive():
        await asyncio.sleep(3600)

    with suppress(ClientDisconnect):  # what starlette makes of an OSError
        await app(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    "then",
    [None, guard.TokenError("gone"), Identity("somebody", Role.OPEN)],
    ids=["nobody", "gone", "another"],
)
async def test_a_stream_ends_when_its_token_holds_no_longer(monkeypatch, then):
    knows = Fickle()
    knows.then = then
    sent = await streamed(knows, monkeypatch)
    assert len(sent) == 6
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.mark.parametrize("path", ["/ws/v1/events/stream", "/v1/live"])
async def test_a_quiet_stream_ends_when_its_token_is_taken_back(running, tokens, monkeypatch, path):  # noqa: F811
    monkeypatch.setattr(guard, "QUIET_SECONDS", 0.01)
    monkeypatch.setattr(live, "BEAT_SECONDS", 3600.0)
    cluster = running.cluster
    replica = Replica(lambda: cluster.running["api"].host, lambda: cluster.api)
    app = make_app(replica, access=Access([TokensFile(tokens)]))
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "scheme": "http", "http_version": "1.1",
        "headers": [(b"host", b"muster"), (b"authorization", b"Bearer the-read-token")],
        "client": ("test", 1), "server": ("muster", 80), "asgi": {"spec_version": "2.4"},
    }  # fmt: skip
    sent: asyncio.Queue = asyncio.Queue()

    async def never():
        await asyncio.Event().wait()

    answering = asyncio.create_task(app(scope, never, sent.put))
    assert (await sent.get())["status"] == 200
    assert (await sent.get())["more_body"]
    tokens.write_text(lines("submit"))
    async with patience():
        while (part := await sent.get())["more_body"]:
            pass
    assert part["body"] == b""
    with suppress(ClientDisconnect, OSError):
        await answering
    assert not cluster.api.streams.open


def test_a_token_that_is_taken_back_ends_a_quiet_stream_within_ten_seconds():
    assert guard.QUIET_SECONDS + watched.LOOK_SECONDS < 10
    assert guard.AGAIN_SECONDS + watched.LOOK_SECONDS < 10


async def test_a_stream_goes_on_while_nobody_can_say(monkeypatch):
    knows = Fickle()
    knows.then = KeysError("away")
    assert len(await streamed(knows, monkeypatch)) > 1_000


async def test_while_nobody_can_say_whose_a_token_is_it_is_asked_again_later():
    knows = Fickle()
    knows.says = KeysError("the keys are not to be had")
    replica = Replica(lambda: None, lambda: None)  # nobody comes as far
    transport = httpx.ASGITransport(make_app(replica, access=Access([knows])))
    async with httpx.AsyncClient(transport=transport, base_url="http://muster") as client:
        answered = await client.get("/v1/queues", headers=bearer("x"))
    assert answered.status_code == 503
    assert "try again" in answered.json()["message"]
