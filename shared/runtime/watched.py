"""A file that users or controllers replace while a service runs: certificates, tokens, keys.

It is checked when its value is requested, at most every LOOK_SECONDS. If the file is unreadable,
too large or invalid, the last good value stays in use, and the cause is logged once.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import structlog

LOOK_SECONDS = 1.0
T = TypeVar("T")
log = structlog.get_logger("muster.files")


class WatchedFile(Generic[T]):
    """The parsed value of a file. The constructor raises OSError, or ``read``'s ValueError."""

    def __init__(self, path: Path, read: Callable[[bytes], T], max_bytes: int) -> None:
        self._path = path
        self._read = read
        self._max_bytes = max_bytes
        self._seen = signature(path)
        self._looked = time.monotonic()
        self._value = self._load()

    @property
    def value(self) -> T:
        """The file's current value, or its last valid one."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._check()
        return self._value

    def _check(self) -> None:
        seen = signature(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._value = self._load()
        except (OSError, ValueError) as error:
            log.warning(
                "a file has changed and is invalid; the previous one stays in use", error=str(error)
            )
        else:
            log.info("a file has changed and is in use now", file=str(self._path))

    def _load(self) -> T:
        with self._path.open("rb") as file:
            text = file.read(self._max_bytes + 1)
        if len(text) > self._max_bytes:
            raise ValueError(f"{self._path}: larger than {self._max_bytes} bytes")
        try:
            return self._read(text)
        except ValueError as error:
            raise ValueError(f"{self._path}: {error}") from error


def signature(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes with the file's content; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
