"""The envelope of every message: identities, order, and the epoch that fences old decisions."""

import re
from dataclasses import dataclass
from hashlib import sha256

from shared.messages.records import record
from shared.messages.trace import traceparent_of
from shared.model.ids import child_traceparent, derived_id
from shared.model.names import DEFAULT_PARTITION

SCHEMA_VERSION = 1
_MEMBERS = "_members"
MAX_INSTANCE = 200  # characters: it goes into addresses, which have at most 255 bytes


@dataclass(frozen=True, slots=True)
class Address:
    """The destination of a message: a service, and its partition or one of its instances.

    ``Address("api", "all")`` reaches every API replica, and so does ``Address("api", "trace")``,
    which is also stored for later replicas. ``Address("core_members", "all")`` reaches every
    process of the core; ``timers_members`` those of the timers. Other addresses reach one inbox.
    """

    service: str
    name: str = DEFAULT_PARTITION

    @property
    def routing_key(self) -> str:
        """The address as a dotted word, as used in routing keys on a broker."""
        return f"{self.service}.{self.name}"

    def reaches(self, inbox: "Address") -> bool:
        """Whether messages to this address are put into an inbox."""
        is_for_all = not self.is_durable and self.name in ("all", "trace")
        return (is_for_all and self.service == inbox.service) or self == inbox

    @property
    def is_durable(self) -> bool:
        """Whether the inbox outlives its reader; a replica's or a process's own does not."""
        return self.service != "api" and not self.service.endswith(_MEMBERS)

    @property
    def owner(self) -> str:
        """The service that reads the inbox."""
        return self.service.removesuffix(_MEMBERS)


_WORD = re.compile(r"[A-Za-z0-9_-]{1,63}")
_HASHED = 32  # hexadecimal digits in place of a name that is no word


def word_of(partition: str) -> str:
    """Return a partition's name as a word of an address.

    A name with other characters is replaced by its hash, with a prefix that no name has, so that no
    two partitions share an inbox.
    """
    if _WORD.fullmatch(partition):
        return partition
    return "@" + sha256(partition.encode(errors="surrogatepass")).hexdigest()[:_HASHED]


def inbox_of(service: str, partition: str) -> Address:
    """Return the inbox of a service for a partition."""
    return Address(service, word_of(partition))


def core_of(partition: str) -> Address:
    """Return the inbox of a partition's core."""
    return inbox_of("core", partition)


def timers_of(partition: str) -> Address:
    """Return the inbox of a partition's timers."""
    return inbox_of("timers", partition)


def members_of(service: str, instance: str) -> Address:
    """Return the inbox of a process of core or timers; instance ``all`` reaches all of them."""
    return Address(f"{service}{_MEMBERS}", instance.replace(".", "-"))


CORE = core_of(DEFAULT_PARTITION)
SHIM_ADAPTER = Address("shim_adapter")
TIMERS = timers_of(DEFAULT_PARTITION)
PARTITIONED = ("core", "timers")  # services that have an inbox for every partition
MEMBERS = tuple(members_of(service, "all") for service in PARTITIONED)
API_ALL = Address("api", "all")
API_TRACE = Address("api", "trace")


@record
class Outgoing:
    """A message to send. ``reply_to`` requests an answer to that address.

    ``partition`` is the partition it concerns ("": the machine's own).

    ``asked_by`` names an instance that requests something for itself. Two instances that do so
    because of the same message (delivered twice) then have distinct messages.
    """

    to: Address
    message: object
    epoch: int = 0
    seq: int = 0
    reply_to: str = ""
    correlation_id: str = ""
    asked_by: str = ""
    partition: str = ""


@record
class Envelope:
    """A message with its metadata.

    ``correlation_id`` is the application's trace. ``cause_id`` is the step that caused this
    message: a handled message, or a batch's decision (``shared/runtime/steps.py``). ``epoch``
    fences decisions (0: not fenced), ``seq`` orders state events.
    """

    message_id: str
    kind: str
    message: object
    to: Address
    source: str
    correlation_id: str = ""
    cause_id: str = ""
    partition: str = DEFAULT_PARTITION
    epoch: int = 0
    seq: int = 0
    traceparent: str = ""
    reply_to: str = ""
    published_ns: int = 0
    schema_version: int = SCHEMA_VERSION


def envelope_of(
    outgoing: Outgoing,
    *,
    cause: Envelope,
    index: int,
    source: str,
    now_ns: int,
    step: str = "",
    story: str = "",
    partition: str = DEFAULT_PARTITION,
) -> Envelope:
    """Return the index-th answer to a message; a redelivery produces the same identity again.

    Another epoch produces another identity, so that the answer of a machine in a new epoch is
    handled although the previous one was.
    ``step`` is the causing step, if it is not just the message; ``story`` the application that the
    answer concerns, if it is a single one; ``partition`` the sender's.
    """
    said_by = f"{source}:{outgoing.asked_by}:{outgoing.epoch}"
    message_id = derived_id(f"{said_by}:{cause.message_id}", index)
    return Envelope(
        message_id=message_id,
        kind=type(outgoing.message).__name__,
        message=outgoing.message,
        to=outgoing.to,
        source=source,
        correlation_id=outgoing.correlation_id or story or cause.correlation_id,
        cause_id=step or cause.message_id,
        partition=outgoing.partition or partition,
        epoch=outgoing.epoch,
        seq=outgoing.seq,
        traceparent=(
            traceparent_of(story, message_id)
            if story
            else child_traceparent(cause.traceparent, message_id)
        ),
        reply_to=outgoing.reply_to,
        published_ns=now_ns,
    )


def reply_address(reply_to: str) -> Address | None:
    """Return the address in a ``reply_to``, or None if no answer is wanted.

    Format: ``api.<instance>#<request>``. The part after ``#`` belongs to the requester, and is
    returned in the answer's ``reply_to``.
    """
    service, _, name = reply_to.partition("#")[0].partition(".")
    return Address(service, name) if service and name else None
