"""The checksum of a queue configuration: by it a verdict finds the text that it judges.

Source: docs/rules/queues.md#checksum.
"""

import re
from hashlib import sha256

_STATED = re.compile(r"checksum: .{64}")


def checksum_of(text: str) -> str:
    """Return the SHA-256 of a queues.yaml less the checksum that it states, in capital hex."""
    return sha256(_STATED.sub("", text).encode()).hexdigest().upper()
