"""Texts stored gzipped and in base64: ConfigMaps' binaryData, and annotations of the Lease."""

import gzip
import zlib
from base64 import b64decode, b64encode

MAX_CONFIG_BYTES = 3 * 1024 * 1024
_GZIP = 31  # zlib's window bits for gzip alone


def packed(text: str) -> str:
    """Compress a text for storage in an object; equal texts give equal results."""
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpacked(value: str) -> str | None:
    """Decompress a text, up to MAX_CONFIG_BYTES; None if it is invalid or incomplete.

    A longer text is cut there, and refused for its length by its reader.
    """
    try:
        unpack = zlib.decompressobj(wbits=_GZIP)
        text = unpack.decompress(b64decode(value, validate=True), MAX_CONFIG_BYTES)
        if unpack.eof:
            return text.decode()
    except (ValueError, zlib.error):
        return None
    return text.decode(errors="ignore") if unpack.unconsumed_tail else None
