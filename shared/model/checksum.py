"""The checksum of a queue configuration, which relates a result to the text that was checked.

Source: docs/rules/queues.md#checksum.
"""

import re
from hashlib import sha256

_STATED = re.compile(r"checksum: .{64}")


def checksum_of(text: str) -> str:
    """Return the SHA-256 of a queues.yaml without its own checksum line, in upper-case hex."""
    return sha256(_STATED.sub("", text).encode()).hexdigest().upper()
