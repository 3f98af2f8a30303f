"""Files that users name, read no further than any of them may be long.

Where one is longer, is a device that has no end, or has a name that no file can have, that is an
OSError like any other. `-` is what comes through a pipe, for the commands that say so.
"""

import errno
import sys
from pathlib import Path

MAX_FILE_BYTES = 8 * 1024 * 1024  # bytes of a file that a command of `muster` reads; an error
STDIN = Path("-")


def bytes_of(file: Path, *, may_be_stdin: bool = False) -> bytes:
    """Return what is in a file. Raises OSError, its ``strerror`` says why."""
    if may_be_stdin and file == STDIN:
        return _bounded(sys.stdin.buffer.read(MAX_FILE_BYTES + 1), file)
    try:
        with file.open("rb") as opened:
            return _bounded(opened.read(MAX_FILE_BYTES + 1), file)
    except ValueError as error:  # a zero byte in it
        raise OSError(errno.EINVAL, f"no file has such a name: {error}", str(file)) from error


def text_of(file: Path, *, may_be_stdin: bool = False) -> str:
    """Return a file's text, lines ended as users' editors end them.

    Raises OSError, and UnicodeDecodeError where it is not UTF-8.
    """
    text = bytes_of(file, may_be_stdin=may_be_stdin).decode()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _bounded(body: bytes, file: Path) -> bytes:
    if len(body) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"more than {MAX_FILE_BYTES} bytes", str(file))
    return body
