"""Tokens of an OpenID Connect issuer: JSON Web Tokens, checked here with the issuer's public keys.

Rule 1: ``iss`` and ``aud`` are the configured ones, ``exp`` is there and has not passed, ``nbf``
        and ``iat`` are past, each give or take LEEWAY_SECONDS.
Rule 2: the algorithm is one of the configured ones, all of which are asymmetric: neither ``none``
        nor a public key that is used as a secret is accepted.
Rule 3: keys come from a file, read again when it changes, or from an address (by default what the
        issuer's discovery names), asked for at the first token, every REFRESH_SECONDS, and for a
        key that is not known; never more often than every RETRY_SECONDS, one request at a time.
        While the issuer is away, the last keys are used.
Rule 4: the role is the largest that a value of the role claim stands for, or none.

Source: RFC 7519, RFC 7517, RFC 8725, OpenID Connect Core 3.1.3.7 and Discovery 4.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import structlog
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jwt import JWTClaimsRegistry, decode

from services.api.access.identity import Identity, KeysError, TokenError
from services.api.access.roles import Role
from shared.runtime.watched import WatchedFile

LEEWAY_SECONDS = 30
REFRESH_SECONDS = 600.0
RETRY_SECONDS = 30.0
MAX_KEYS_BYTES = 256 * 1024  # bytes of an issuer's keys or discovery; as unreachable
MAX_KEYS = 100  # keys of an issuer; as unreachable
_FETCH_SECONDS = 5.0
_PARTS = 3
_DISCOVERY = "/.well-known/openid-configuration"
log = structlog.get_logger("muster.api")


@dataclass(frozen=True, slots=True)
class Issuer:
    """An accepted issuer. ``keys``: a file, an address, or "" for discovery."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    roles: dict[str, Role]
    keys: str = ""
    name_claim: str = "sub"
    role_claim: str = "roles"


class OidcTokens:
    """The tokens of one issuer. Raises OSError or ValueError for an invalid file of keys."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        is_file = bool(issuer.keys) and "://" not in issuer.keys
        self._keys = _KeysFile(Path(issuer.keys)) if is_file else _KeysAt(issuer)
        self._claims = JWTClaimsRegistry(
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": issuer.issuer},
            aud={"essential": True, "value": issuer.audience},
            exp={"essential": True},
        )

    async def identify(self, token: str) -> Identity | None:
        """Return a token's user; None if it is no JSON Web Token."""
        if len(token.split(".")) != _PARTS:
            return None
        claims = await self._checked(token)
        name = _claim(claims, self._issuer.name_claim)
        if not isinstance(name, str) or not name:
            raise TokenError(f"the token has no claim {self._issuer.name_claim}")
        values = _claim(claims, self._issuer.role_claim)
        held = values if isinstance(values, list) else [values]
        roles = [self._issuer.roles.get(item, Role.OPEN) for item in held if isinstance(item, str)]
        return Identity(name[:200], max(roles, default=Role.OPEN), int(claims["exp"]))

    async def _checked(self, token: str) -> dict[str, Any]:
        """Return the claims of a valid token. Raises TokenError, KeysError."""
        algorithms = self._issuer.algorithms
        try:
            try:
                found = decode(token, await self._keys.known(), algorithms=algorithms)
            except InvalidKeyIdError:
                found = decode(token, await self._keys.renewed(), algorithms=algorithms)
            self._claims.validate(found.claims)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            raise TokenError(f"the token is invalid: {_sentence(error)}") from None
        return found.claims


def _sentence(error: Exception) -> str:
    """Return an error's text, or only its type if it is no JOSE error."""
    return str(error)[:200] if isinstance(error, JoseError) else type(error).__name__


def _claim(claims: dict[str, Any], path: str) -> Any:
    """Return a claim; a name with dots may be that of a nested claim."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def read_keys(text: bytes) -> KeySet:
    """Return a JSON Web Key Set. Raises ValueError."""
    try:
        value = json.loads(text)
        if len(value["keys"]) > MAX_KEYS:
            raise ValueError(f"more than {MAX_KEYS} keys")
        return KeySet.import_key_set(value)
    except (JoseError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(f"no JSON Web Key Set: {error!r}"[:300]) from None


class _KeysFile:
    """Keys in a file."""

    def __init__(self, path: Path) -> None:
        self._file = WatchedFile(path, read_keys, MAX_KEYS_BYTES)

    async def known(self) -> KeySet:
        """Return the keys."""
        return self._file.value

    renewed = known


class _KeysAt:
    """Keys at an address, cached."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._keys: KeySet | None = None
        self._asked = -RETRY_SECONDS  # whether it was answered or not, as the two below
        self._answered = 0.0
        self._error = ""
        self._lock = asyncio.Lock()

    async def known(self) -> KeySet:
        """Return the keys, and renew them when they are old. Raises KeysError if there are none.

        While one request renews them, the others use the old ones.
        """
        is_old = time.monotonic() - self._answered > REFRESH_SECONDS
        if self._keys is None or (is_old and not self._lock.locked()):
            return await self.renewed()
        return self._keys

    async def renewed(self) -> KeySet:
        """Return the keys, fetched again unless that was done recently. Raises KeysError."""
        async with self._lock:
            if self._keys is None or time.monotonic() - self._asked > RETRY_SECONDS:
                await self._renew()
        if self._keys is None:
            raise KeysError(self._error)
        return self._keys

    async def _renew(self) -> None:
        if time.monotonic() - self._asked < min(1.0, RETRY_SECONDS):
            return  # the holder of the lock has just asked in vain
        try:
            async with httpx.AsyncClient(timeout=_FETCH_SECONDS) as client:
                address = self._issuer.keys or await self._discovered(client)
                self._keys = read_keys(await _fetched(client, address))
            self._answered = time.monotonic()
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            self._error = f"the keys of {self._issuer.issuer} are not to be had"
            log.warning(self._error, error=repr(error)[:300])
        self._asked = time.monotonic()

    async def _discovered(self, client: httpx.AsyncClient) -> str:
        """Return the URL of the issuer's keys, from its discovery document. Raises ValueError."""
        issuer = self._issuer.issuer
        value = json.loads(await _fetched(client, issuer.rstrip("/") + _DISCOVERY))
        if not isinstance(value, dict) or value.get("issuer") != issuer:
            raise ValueError("the discovery document is not of this issuer")
        address = value.get("jwks_uri")
        if not isinstance(address, str) or not is_safe_address(address):
            raise ValueError("the discovery document has no safe jwks_uri")
        return address


async def _fetched(client: httpx.AsyncClient, address: str) -> bytes:
    """Fetch a body of at most MAX_KEYS_BYTES within _FETCH_SECONDS."""
    body = b""
    async with asyncio.timeout(_FETCH_SECONDS), client.stream("GET", address) as response:
        response.raise_for_status()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > MAX_KEYS_BYTES:
                raise ValueError(f"more than {MAX_KEYS_BYTES} bytes")
    return body


def is_safe_address(address: str) -> bool:
    """Whether requests to an address are protected against tampering."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL:
        return False
    is_here = url.host in ("localhost", "127.0.0.1", "::1")
    return bool(url.host) and (url.scheme == "https" or (url.scheme == "http" and is_here))
