"""Broker addresses: one URL that names several hosts of a cluster.

``amqp://USER:PASSWORD@h1:5672,h2:5672,h3/VHOST?QUERY`` names three brokers; user, password, vhost
and query are the same for each. Limit: MAX_ADDRESSES; a URL with more is refused.
"""

import hashlib
from collections.abc import Sequence
from urllib.parse import urlsplit

from shared.bus.errors import UnknownBusError

SCHEMES = ("amqp://", "amqps://")
MAX_ADDRESSES = 16  # hosts of a broker URL; one with more is refused


def addresses_of(url: str) -> tuple[str, ...]:
    """Return one URL per host of a broker URL, in its order. Raises UnknownBusError.

    The error message never contains the password.
    """
    scheme, found, rest = url.partition("://")
    if not found or f"{scheme}://" not in SCHEMES:
        shown = scheme + found + rest.rpartition("@")[2]
        raise UnknownBusError(f"{shown!r}: expected memory, amqp://… or amqps://…")
    netloc, slash, path = rest.partition("/")
    if any(other in path for other in SCHEMES):
        raise UnknownBusError(
            f"several URLs in one; name all hosts in one URL: {scheme}://USER@h1:5672,h2:5672/VHOST"
        )
    user, at, hosts = netloc.rpartition("@")
    names = hosts.split(",")
    if len(names) > MAX_ADDRESSES:
        raise UnknownBusError(f"{len(names)} hosts, at most {MAX_ADDRESSES}")
    for name in names:
        _check_host(name, hosts)
    return tuple(f"{scheme}://{user}{at}{name}{slash}{path}" for name in names)


def _check_host(name: str, hosts: str) -> None:
    try:
        parts = urlsplit(f"amqp://{name}")
        port = parts.port
    except ValueError as error:
        raise UnknownBusError(f"{name!r}: {error}") from error
    if not parts.hostname or port == 0 or "@" in name:
        raise UnknownBusError(f"{hosts!r}: expected HOST or HOST:PORT, with commas between")


def order_of(addresses: Sequence[str], name: str) -> tuple[str, ...]:
    """Return addresses in the order in which a service of this name tries them.

    Each name has its own order, so that the services of a deployment spread over the brokers, also
    over those that remain when one fails.
    """

    def key(address: str) -> bytes:
        return hashlib.sha256(f"{name} {address.rpartition('@')[2]}".encode()).digest()

    return tuple(sorted(addresses, key=key))
