"""The user of a request, and why a token has none."""

from dataclasses import dataclass
from typing import Protocol

from services.api.access.roles import Role


class TokenError(Exception):
    """A token without a user here; the message has the reason, and never the token."""


class KeysError(Exception):
    """A token cannot be judged now: the issuer's keys are not to be had."""


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
        """Return whose token it is; None: none of mine. Raises TokenError, KeysError."""
