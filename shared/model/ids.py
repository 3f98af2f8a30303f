"""Identities derived from their cause, so that a redelivery derives the same ones."""

from hashlib import blake2s


def derived_id(cause: str, index: int) -> str:
    """Return the identity of a cause's index-th effect: 32 hex digits."""
    return blake2s(f"{cause}/{index}".encode(), digest_size=16).hexdigest()


def derived_suffix(cause: str, length: int) -> str:
    """Return ``length`` characters of [a-z0-9] derived from a cause, for pod names."""
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    digest = blake2s(cause.encode(), digest_size=32).digest()
    return "".join(alphabet[byte % len(alphabet)] for byte in digest[:length])


def child_traceparent(parent: str, message_id: str) -> str:
    """Return a message's W3C traceparent: the parent's trace, with a span of its own."""
    trace_id = parent[3:35] if is_traceparent(parent) else derived_id(message_id, 0)
    return f"00-{trace_id}-{derived_id(message_id, 1)[:16]}-01"


def is_traceparent(text: str) -> bool:
    """Whether a text has the form of a W3C traceparent of version 00."""
    parts = text.split("-")
    lengths = [2, 32, 16, 2]
    return (
        [len(part) for part in parts] == lengths
        and all(set(part) <= set("0123456789abcdef") for part in parts)
        and parts[1] != "0" * 32
    )
