"""The user of a request, and errors of tokens."""

from dataclasses import dataclass
from typing import Protocol

from services.api.access.roles import Role


class TokenError(Exception):
    """A token without a user; the message has the reason, and never the token."""


class KeysError(Exception):
    """A token cannot be checked now, because the issuer's keys are unavailable."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user with the rights of a role; ``until`` is in seconds since 1970, or None."""

    name: str
    role: Role
    until: int | None = None


ANYBODY = Identity("anybody", Role.OPERATE)  # without authentication


class Authenticator(Protocol):
    """An issuer of tokens."""

    async def identify(self, token: str) -> Identity | None:
        """Return a token's user, None for another issuer's token. Raises TokenError, KeysError."""
