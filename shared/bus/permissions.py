"""The broker permissions of each service in RabbitMQ's format, derived from the message routes.

Rule 1: one user per service. It publishes only the kinds that ``shared.messages.routes`` lists: the
        kind is part of the routing key, which the broker checks. The reader compares the kind in
        the message with the key (``shared.bus.amqp_message``).
Rule 2: a user reads its own inbox, and binds it to the keys of its own address. The API's user also
        reads the feeds, the trace and all dead letters.
Rule 3: a user declares and deletes nothing: the definitions contain exchanges and inboxes. The
        exceptions are queues read only by its own instances (API replicas, processes of core and
        timers), and inboxes of further partitions, which the shim adapter declares because it knows
        the partitions.
Rule 4: every service may dead-letter what it received: each writes to the dead-letter exchange. So
        a service replays only what its own user dead-lettered (``shared.bus.amqp_letters``).

Patterns are Erlang's (PCRE), matched anywhere in a name unless they are anchored.
"""

import base64
import hashlib
import re
import secrets
import shlex
from dataclasses import dataclass
from typing import Any

from shared.bus import topology
from shared.messages.routes import ANY_CORE, ANY_REPLICA, ANY_TIMERS, SENDERS, SERVICES

_ANY = {  # inboxes by pattern
    ANY_REPLICA: r"api\.(?!all\.|trace\.)[^.]+",
    ANY_CORE: r"core\.[^.]+",
    ANY_TIMERS: r"timers\.[^.]+",
}
_SALT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Permissions:
    """A user's patterns: configure, write and read by name; publish and bind by routing key."""

    user: str
    configure: str
    write: str
    read: str
    publish: str
    bind: str


def user_of(prefix: str, service: str) -> str:
    """Return the name of a service's broker user."""
    return f"{prefix}-{service.replace('_', '-')}"


def permissions(prefix: str, service: str) -> Permissions:
    """Return the permissions of a service's user."""
    exchanges = [topology.exchange_name(prefix), topology.dead_exchange_name(prefix)]
    own = [item.name for item in topology.durable_queues(prefix) if item.service == service]
    write = read = [re.escape(name) for name in (*exchanges, *own)]
    name = re.escape(prefix)
    made, address = rf"{name}\.{service}_members\..*", rf"{service}(\.default\.#|_members\..*)"
    match service:
        case "api":
            made, address = rf"{name}\.api\.(?!trace$).*", r"api\..*"
            read = [*read, rf"{re.escape(topology.dead_exchange_name(prefix))}\..*"]
        case "shim_adapter":
            further = r"(core|timers)\.(?!default(\.|$))[^.]+"
            made, address = rf"{name}\.{further}", rf"(shim_adapter\.default|{further})\.#"
        case _:
            read = [*read, rf"{name}\.{service}\.[^.]+"]
    write = [*write, made]
    read = [*read, *([] if service == "shim_adapter" else [made])]
    return Permissions(
        user_of(prefix, service),
        f"^({made})$",
        f"^({'|'.join(write)})$",
        f"^({'|'.join(read)})$",
        f"^({'|'.join(_keys(service))})$",
        f"^{address}$",
    )


def _keys(service: str) -> list[str]:
    """Return patterns of the routing keys that a service publishes with."""
    found = []
    for inbox, kinds in SENDERS.items():
        said = [kind for kind, senders in kinds.items() if service in senders]
        where = _ANY.get(inbox) or re.escape(inbox)
        if said:
            found.append(rf"{where}\.({'|'.join(said)})")
    return found


def definitions(prefix: str, passwords: dict[str, str], vhost: str = "/") -> dict[str, Any]:
    """Return definitions to import into a broker: users with hashed passwords, and the topology."""
    of_users = [permissions(prefix, service) for service in SERVICES]
    return {
        "vhosts": [{"name": vhost}],
        "users": [
            {
                "name": user_of(prefix, service),
                "password_hash": _hashed(passwords[service]),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "",
            }
            for service in SERVICES
        ],
        "permissions": [
            {
                "user": item.user, "vhost": vhost, "configure": item.configure,
                "write": item.write, "read": item.read,
            }
            for item in of_users
        ],
        "topic_permissions": [
            {
                "user": item.user, "vhost": vhost, "exchange": topology.exchange_name(prefix),
                "write": item.publish, "read": item.bind,
            }
            for item in of_users
        ],
        **_topology(prefix, vhost),
    }  # fmt: skip


def _hashed(password: str) -> str:
    """Return a password's hash in RabbitMQ's format."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def _topology(prefix: str, vhost: str) -> dict[str, Any]:
    exchange, dead = topology.exchange_name(prefix), topology.dead_exchange_name(prefix)
    return {
        "exchanges": [
            {
                "name": name, "vhost": vhost, "type": kind, "durable": True,
                "auto_delete": False, "internal": False, "arguments": {},
            }
            for name, kind in ((exchange, "topic"), (dead, "direct"))
        ],
        "queues": [
            {
                "name": item.name, "vhost": vhost, "durable": True, "auto_delete": False,
                "arguments": item.arguments,
            }
            for item in topology.durable_queues(prefix)
        ],
    }  # fmt: skip


def rabbitmqctl_lines(prefix: str, vhost: str = "/") -> list[str]:
    """Return the rabbitmqctl commands that set the permissions on an existing broker."""
    lines = []
    for service in SERVICES:
        item = permissions(prefix, service)
        exchange = topology.exchange_name(prefix)
        for command, words in (
            ("set_permissions", [item.configure, item.write, item.read]),
            ("set_topic_permissions", [exchange, item.publish, item.bind]),
        ):
            lines.append(shlex.join(["rabbitmqctl", command, "-p", vhost, item.user, *words]))
    return lines
