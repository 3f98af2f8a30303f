"""Tokens of an issuer: what holds, what does not, and where the issuer's keys come from."""

import asyncio
import base64
import hmac
import json
import time
from hashlib import sha256

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from services.api.access import oidc
from services.api.access.identity import KeysError, TokenError
from services.api.access.oidc import MAX_KEYS, Issuer, OidcTokens
from services.api.access.roles import Role
from shared.runtime import watched

ISSUER = "https://issuer.example"
ROLES = {"muster-read": Role.READ, "muster-submit": Role.SUBMIT, "muster-operate": Role.OPERATE}
RSA = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
OTHER = ECKey.generate_key("P-256", {"kid": "ec"})
NEW = ECKey.generate_key("P-256", {"kid": "new"})
NOW = int(time.time())
CLAIMS = {
    "iss": ISSUER,
    "aud": "muster",
    "sub": "ada",
    "exp": NOW + 3600,
    "roles": ["muster-submit"],
}


def key_set(*keys):
    return json.dumps(KeySet(list(keys)).as_dict(private=False))


def signed(claims=CLAIMS, key=EC, algorithm="ES256", **header):
    head = {"alg": algorithm, "kid": key.kid, **header}
    return jwt.encode(head, claims, key, algorithms=[algorithm])


def issuer(keys="", **more):
    more = {"issuer": ISSUER, "algorithms": ("RS256", "ES256"), **more}
    return Issuer(audience="muster", roles=ROLES, keys=str(keys), **more)


@pytest.fixture
def keys(tmp_path, monkeypatch):
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    path = tmp_path / "keys.json"
    path.write_text(key_set(RSA, EC))
    return path


@pytest.fixture
def tokens(keys):
    return OidcTokens(issuer(keys))


async def test_a_token_of_the_issuer_says_who_it_is_and_what_they_may(tokens):
    for token in (signed(), signed(key=RSA, algorithm="RS256")):
        found = await tokens.identify(token)
        assert (found.name, found.role, found.until) == ("ada", Role.SUBMIT, NOW + 3600)


async def test_what_is_no_json_web_token_is_left_to_others(tokens):
    assert await tokens.identify("muster_abc") is None
    assert await tokens.identify("a.b.c.d.e") is None


def without(name):
    return {key: value for key, value in CLAIMS.items() if key != name}


@pytest.mark.parametrize(
    "claims",
    [
        *(without(name) for name in ("iss", "aud", "exp", "sub")),
        {**CLAIMS, "iss": "https://issuer.example/"},
        {**CLAIMS, "iss": [ISSUER]},
        {**CLAIMS, "aud": "others"},
        {**CLAIMS, "aud": ["others"]},
        {**CLAIMS, "aud": "muster2"},
        {**CLAIMS, "exp": NOW - 60},
        {**CLAIMS, "exp": str(NOW + 3600)},
        {**CLAIMS, "exp": True},
        {**CLAIMS, "nbf": NOW + 3600},
        {**CLAIMS, "iat": NOW + 3600},
        {**CLAIMS, "sub": ""},
        {**CLAIMS, "sub": ["ada"]},
    ],
)
async def test_a_claim_that_does_not_hold_is_refused(tokens, claims):
    with pytest.raises(TokenError):
        await tokens.identify(signed(claims))


async def test_an_audience_of_several_and_a_clock_that_is_a_little_off_hold(tokens):
    assert await tokens.identify(signed({**CLAIMS, "aud": ["others", "muster"]}))
    now = int(time.time())
    assert await tokens.identify(signed({**CLAIMS, "exp": now - 5, "nbf": now + 5}))


def encoded(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")


def forged(alg, key):
    """Return a token whose signature is an HMAC with a text that everybody knows."""
    text = encoded({"alg": alg, "kid": "rsa"}) + b"." + encoded(CLAIMS)
    mac = hmac.new(key, text, sha256).digest() if key else b""
    return (text + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def bare(header):
    return (encoded(header) + b"." + encoded(CLAIMS) + b".eA").decode()


@pytest.mark.parametrize(
    "make",
    [
        lambda: forged("none", b""),
        lambda: forged("None", b""),
        lambda: forged("HS256", RSA.as_pem(private=False)),  # the public key as a secret
        lambda: forged("HS256", json.dumps(RSA.as_dict(private=False)).encode()),
        lambda: signed(key=OTHER),  # of the same name
        lambda: signed(key=NEW),
        lambda: signed(key=RSA, algorithm="RS512"),  # not one of ours
        lambda: signed()[:-4],
        lambda: signed()[:-4] + "AAAA",
        lambda: "..",
        lambda: "a.b.c",
        lambda: bare("[" * 100),
        lambda: bare({"alg": ["ES256"], "kid": "ec"}),
        lambda: bare({"alg": "ES256", "kid": {"a": 1}}),
        lambda: bare({"alg": "RS256", "kid": "ec"}),
        lambda: bare({"alg": "ES256", "kid": "ec", "crit": ["exp"], "exp": 1}),
        lambda: bare({"alg": "ES256", "kid": "ec", "crit": 5}),
        lambda: bare({"alg": "ES256", "kid": "ec", "b64": False}),
    ],
)
async def test_what_the_issuer_has_not_signed_so_is_refused(tokens, make):
    with pytest.raises(TokenError):
        await tokens.identify(make())


async def test_a_secret_among_the_keys_signs_nothing(keys):
    secret = OctKey.generate_key(256, {"kid": "s"})
    keys.write_text(json.dumps({"keys": [secret.as_dict(private=True)]}))
    with pytest.raises(TokenError):
        await OidcTokens(issuer(keys)).identify(signed(key=secret, algorithm="HS256"))


@pytest.mark.parametrize(
    ("roles", "role"),
    [
        (["muster-read", "muster-operate", "others"], Role.OPERATE),
        ("muster-read", Role.READ),
        ([], Role.OPEN),
        (["operate", "MUSTER-OPERATE"], Role.OPEN),
        ([["muster-operate"], {"a": 1}, None, 3], Role.OPEN),
        ({"muster-operate": True}, Role.OPEN),
        (None, Role.OPEN),
    ],
)
async def test_the_largest_role_that_the_claim_has_a_value_for_counts(tokens, roles, role):
    assert (await tokens.identify(signed({**CLAIMS, "roles": roles}))).role is role


async def test_claims_may_have_other_names_and_stand_inside_others(keys):
    claims = {**without("roles"), "email": "a@b.c", "realm": {"roles": ["muster-read"]}}
    named = OidcTokens(issuer(keys, name_claim="email", role_claim="realm.roles"))
    found = await named.identify(signed(claims))
    assert (found.name, found.role) == ("a@b.c", Role.READ)
    flat = {**claims, "realm.roles": "muster-submit"}
    assert (await named.identify(signed(flat))).role is Role.SUBMIT
    assert (await named.identify(signed({**claims, "realm": "roles"}))).role is Role.OPEN


async def test_a_file_of_keys_that_changes_is_read_anew(keys, tokens):
    with pytest.raises(TokenError):
        await tokens.identify(signed(key=NEW))
    keys.write_text(key_set(NEW))
    assert await tokens.identify(signed(key=NEW))
    with pytest.raises(TokenError):
        await tokens.identify(signed())


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"keys": {}}', '{"keys": []}', '{"keys": [3]}', '{"keys": "abc"}', "[" * 9999,
     json.dumps({"keys": [{"kty": "EC"}]}), json.dumps({"keys": [{}] * (MAX_KEYS + 1)})],
)  # fmt: skip
def test_what_is_no_key_set_is_an_error_with_the_file_s_name(keys, text):
    keys.write_text(text)
    with pytest.raises(ValueError, match=str(keys)):
        OidcTokens(issuer(keys))


class Site:
    """An issuer's own web server."""

    def __init__(self):
        self.asked = []
        self.keys = key_set(EC)
        self.status = 200
        self.discovery = {}
        app = web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        self.server = TestServer(app)

    async def answer(self, request):
        self.asked.append(request.path)
        await asyncio.sleep(0.01)
        if request.path.startswith("/.well-known"):
            here = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
            return web.json_response({**here, **self.discovery}, status=self.status)
        return web.Response(text=self.keys, status=self.status)

    @property
    def url(self):
        return str(self.server.make_url("")).rstrip("/")


@pytest.fixture
async def site():
    site = Site()
    await site.server.start_server()
    yield site
    await site.server.close()


async def test_keys_are_discovered_and_asked_for_once(site):
    tokens = OidcTokens(issuer(issuer=site.url))
    token = signed({**CLAIMS, "iss": site.url})
    assert all(await asyncio.gather(*(tokens.identify(token) for _ in range(20))))
    assert site.asked == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.parametrize(
    "discovery",
    [{"issuer": "https://other.example"}, {"jwks_uri": "http://other.example/keys"},
     {"jwks_uri": None}, {"jwks_uri": "file:///etc/passwd"}],
)  # fmt: skip
async def test_a_discovery_that_leads_elsewhere_is_not_followed(site, discovery):
    site.discovery = discovery
    with pytest.raises(KeysError, match="not to be had"):
        await OidcTokens(issuer(issuer=site.url)).identify(signed({**CLAIMS, "iss": site.url}))


async def test_a_key_that_is_new_is_asked_for_and_not_at_every_token(site, monkeypatch):
    tokens = OidcTokens(issuer(f"{site.url}/keys"))
    assert await tokens.identify(signed())
    for _ in range(5):
        with pytest.raises(TokenError):
            await tokens.identify(signed(key=NEW))
    assert len(site.asked) == 1  # it was asked a moment ago
    monkeypatch.setattr(oidc, "RETRY_SECONDS", 0.0)
    site.keys = key_set(EC, NEW)
    assert await tokens.identify(signed(key=NEW))
    assert len(site.asked) == 2


async def test_while_the_issuer_is_away_its_last_keys_hold(site, monkeypatch):
    monkeypatch.setattr(oidc, "RETRY_SECONDS", 0.0)
    tokens = OidcTokens(issuer(f"{site.url}/keys"))
    assert await tokens.identify(signed())
    monkeypatch.setattr(oidc, "REFRESH_SECONDS", 0.0)
    site.status = 500
    assert await tokens.identify(signed())
    site.status, site.keys = 200, "x" * (oidc.MAX_KEYS_BYTES + 1)
    assert await tokens.identify(signed())
    site.keys = key_set(NEW)
    with pytest.raises(TokenError):
        await tokens.identify(signed())


async def test_without_any_key_nobody_is_refused_for_good(site):
    site.status = 500
    tokens = OidcTokens(issuer(f"{site.url}/keys"))
    said = await asyncio.gather(
        *(tokens.identify(signed()) for _ in range(9)), return_exceptions=True
    )
    assert {type(error) for error in said} == {KeysError}
    assert len(site.asked) == 1
