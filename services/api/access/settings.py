"""Authentication settings, from the environment.

Rule 1: with a file of tokens or an issuer, every request needs a token.
Rule 2: without either there is no authentication, and the API only starts on loopback addresses,
        unless MUSTER_AUTHENTICATION=off states that a proxy authenticates.
"""

from ipaddress import ip_address

import structlog

from services.api.access.guard import Access
from services.api.access.identity import Authenticator
from services.api.access.oidc import Issuer, OidcTokens, is_safe_address
from services.api.access.roles import NAMED, Role
from services.api.access.tokens import TokensFile
from shared.runtime.settings import Settings, SettingsError

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
log = structlog.get_logger("muster.api")


def access_of(settings: Settings) -> Access:
    """Return the access rules. Raises SettingsError, OSError."""
    authenticators: list[Authenticator] = []
    try:
        if settings.tokens_file is not None:
            authenticators.append(TokensFile(settings.tokens_file))
        if settings.oidc_issuer:
            authenticators.append(OidcTokens(_issuer(settings)))
    except ValueError as error:
        raise SettingsError(str(error)) from error
    metrics = Role.OPEN if settings.metrics_access == "open" else Role.READ
    is_off = settings.authentication == "off"
    if authenticators and is_off:
        raise SettingsError(
            "MUSTER_AUTHENTICATION=off excludes MUSTER_TOKENS_FILE and MUSTER_OIDC_ISSUER"
        )
    where = f"{settings.http_host}:{settings.http_port}"
    if not authenticators and not is_loopback(settings.http_host):
        if not is_off:
            raise SettingsError(
                f"the API would listen on {where} and ask nobody who they are: set "
                "MUSTER_TOKENS_FILE (`muster token` makes one) or MUSTER_OIDC_ISSUER; or "
                "MUSTER_HTTP_HOST=127.0.0.1; or, where a proxy in front asks, "
                "MUSTER_AUTHENTICATION=off"
            )
        log.warning(
            "NO AUTHENTICATION: every client that reaches this port may do everything", where=where
        )
    if authenticators and not is_loopback(settings.http_host) and not settings.http_certificate:
        log.warning(
            "tokens are sent unencrypted: set MUSTER_HTTP_CERTIFICATE, or put a TLS proxy in front"
        )
    return Access(authenticators, metrics)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address. Of names, only localhost is recognised."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _issuer(settings: Settings) -> Issuer:
    """Return the issuer. Raises SettingsError with the variable."""
    if not settings.oidc_audience:
        raise SettingsError("MUSTER_OIDC_AUDIENCE: an issuer's tokens for others are not for us")
    for name, address in (("ISSUER", settings.oidc_issuer), ("KEYS", settings.oidc_keys)):
        if (name == "ISSUER" or "://" in address) and not is_safe_address(address):
            raise SettingsError(f"MUSTER_OIDC_{name}: https://… is expected, found {address!r}")
    algorithms = tuple(settings.oidc_algorithms.split(","))
    unknown = [name for name in algorithms if name not in ALGORITHMS]
    if unknown:
        known = ", ".join(ALGORITHMS)
        raise SettingsError(f"MUSTER_OIDC_ALGORITHMS: {unknown[0]!r}; there are {known}")
    return Issuer(
        settings.oidc_issuer,
        settings.oidc_audience,
        algorithms,
        _roles(settings.oidc_roles),
        settings.oidc_keys,
        settings.oidc_name_claim,
        settings.oidc_role_claim,
    )


def _roles(text: str) -> dict[str, Role]:
    """Return the role of each value of the role claim."""
    found: dict[str, Role] = {}
    for item in text.split(","):
        role, _, value = item.strip().partition("=")
        if role not in NAMED or not value:
            raise SettingsError(f"MUSTER_OIDC_ROLES: read=VALUE,operate=VALUE, found {item!r}")
        found[value] = max(NAMED[role], found.get(value, Role.OPEN))
    return found
