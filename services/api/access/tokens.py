"""Static bearer tokens: a file of names, roles and hashes, read again when it changes.

Of a token the file has the SHA-256 alone: a token is 256 random bits, which no dictionary holds, so
that a slow hash would protect nothing. A line each, ``#`` begins a comment:

    NAME ROLE SHA256        ci submit 9f86d081884c7d659a2feaa0c55ad015…

``muster token NAME --role ROLE`` makes one.
"""

import hmac
import re
import secrets
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from services.api.access.identity import Identity
from services.api.access.roles import NAMED
from shared.runtime.watched import WatchedFile

MAX_FILE_BYTES = 256 * 1024  # bytes of the file of tokens; a larger one is refused
MAX_TOKENS = 1_000  # tokens in a file; the file is refused
PREFIX = "muster_"  # by which scanners of repositories know that something should not be there
_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9._@:/+-]{1,100}")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class _Line:
    digest: bytes
    identity: Identity


class TokensFile:
    """The tokens of a file. Raises OSError or ValueError if it is invalid at first."""

    def __init__(self, path: Path) -> None:
        self._file = WatchedFile(path, read_tokens, MAX_FILE_BYTES)

    async def identify(self, token: str) -> Identity | None:
        """Return the token's user. All tokens are compared, in constant time."""
        digest = sha256(token.encode()).digest()
        found = None
        for line in self._file.value:
            if hmac.compare_digest(line.digest, digest):
                found = line.identity
        return found


def read_tokens(text: bytes) -> list[_Line]:
    """Parse a file of tokens. Raises ValueError with the line, but without the hash."""
    lines: list[_Line] = []
    for number, line in enumerate(text.decode().splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            lines.append(_read_line(number, words))
        if len(lines) > MAX_TOKENS:
            raise ValueError(f"line {number}: more than {MAX_TOKENS} tokens")
    if len({line.digest for line in lines}) < len(lines):
        raise ValueError("one token has two lines")
    if not lines:
        raise ValueError("no tokens, so no request would be allowed; `muster token` creates one")
    return lines


def new_token(name: str, role: str) -> tuple[str, str]:
    """Return a random token, and its line. Raises ValueError for an invalid name or role."""
    token = PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    words = [name, role, sha256(token.encode()).hexdigest()]
    _read_line(1, words)
    return token, " ".join(words)


def _read_line(number: int, words: list[str]) -> _Line:
    if len(words) != 3:  # noqa: PLR2004
        raise ValueError(f"line {number}: expected NAME ROLE SHA256, found {len(words)} words")
    name, role, digest = words
    if not _NAME.fullmatch(name):
        raise ValueError(f"line {number}: a name has 1 to 100 letters, digits and ._@:/+-")
    if role not in NAMED:
        raise ValueError(f"line {number}: no role {role[:20]!r}; there are {', '.join(NAMED)}")
    if not _HASH.fullmatch(digest):
        raise ValueError(f"line {number}: a token's SHA-256 has 64 hexadecimal digits")
    return _Line(bytes.fromhex(digest), Identity(name, NAMED[role]))
