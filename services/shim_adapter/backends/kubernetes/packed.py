"""Texts that objects hold gzipped and in base64: ConfigMaps' binaryData, what the Lease keeps."""

import gzip
import zlib
from base64 import b64decode, b64encode

MAX_CONFIG_BYTES = 3 * 1024 * 1024
_GZIP = 31  # zlib's window bits for gzip alone


def packed(text: str) -> str:
    """Return a text as an object holds it; the same text is always packed the same."""
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def unpacked(value: str) -> str | None:
    """Return a packed text, as far as MAX_CONFIG_BYTES; None: it is none, or was cut short.

    What unpacks to more is read that far and no further, and refused for its length by its reader.
    """
    try:
        unpack = zlib.decompressobj(wbits=_GZIP)
        text = unpack.decompress(b64decode(value, validate=True), MAX_CONFIG_BYTES)
        if unpack.eof:
            return text.decode()
    except (ValueError, zlib.error):
        return None
    return text.decode(errors="ignore") if unpack.unconsumed_tail else None
