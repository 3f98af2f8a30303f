"""The faults of a run: drawn from its seed at the start, each with a fixed index.

A fault is armed from ``at_ns`` of true time on, and happens at the next opportunity: a publish of
its service, an acknowledgement, a bind. A fault without an opportunity does not happen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from shared.model.units import milliseconds, seconds

FAULTY_NS = seconds(40)  # from the start; after that the run is let come to rest
MAX_FAULTS = 16  # faults of one run; more are not drawn
MAX_LATER = 4  # faults of one run of each later group of kinds; more are not drawn

# Kind: what it befalls, and the largest amount that it takes, in milliseconds.
PUBLISHED = {
    "delay": 3_000,  # what a service says arrives late; others' words overtake it
    "duplicate": 1_000,  # it is published twice
    "drop": 0,  # nothing of it arrives, and the publisher hears no confirm
    "lost-confirm": 0,  # a part of it, or all, arrives; the publisher hears no confirm
    "disconnect": 0,  # the same, and the connection is gone with all that was in hand
    "crash-before": 10_000,  # the service dies before it has said anything
    "crash-midway": 10_000,  # when a part of it is said
    "crash-flying": 10_000,  # when it is said, and arrives only after the next has taken over
    "crash-after": 10_000,  # when it is confirmed; its cause is not acknowledged
}
ACKNOWLEDGED = {
    "lost-ack": 0,  # the acknowledgement is lost with the connection
    "crash-acked": 10_000,  # the service dies when its cause is acknowledged
}
TIMED = {
    "crash": 10_000,  # the service dies, whatever it does
    "pause": 15_000,  # it stands still; after three seconds its place goes to the next
    "full": 6_000,  # its inbox refuses
    "broker": 4_000,  # every connection is lost, none can be made
    "clock": 600_000,  # it starts again on a machine whose clock is off, either way
    "clock-set": 600_000,  # its machine's clock is set while it runs, forward or back
    "moved": 10_000,  # it dies, and is started on another machine, with another clock
}
SAVED = {
    "disk-full": 5_000,  # nothing can be kept
    "crash-unsaved": 5_000,  # the shim adapter dies before it has kept what it did
    "crash-torn": 5_000,  # and while it does
    "disk-slow": 8_000,  # it is kept, and until then the shim adapter does nothing else
}
BOUND = {
    "bind-refused": 0,  # the kubelet has no room after all
    "bind-unanswered": 2_000,  # it is done, and heard of only later
    "node-gone": 10_000,  # its node is removed just before, and comes again
    "bind-elsewhere": 0,  # 409: another scheduler was first, and has bound the pod elsewhere
    "bind-conflict": 3_000,  # 409 of the store behind the server, each time: given up then
}
CREATED = {
    "create-refused": 0,  # a placeholder may not be made
    "create-late": 3_000,  # it is made only later; who asks again meanwhile is answered 409
    "create-conflict": 3_000,  # 409 for a moment: it is tried again until then, by who lives
}
DELETED = {"slow-confirm": 8_000}  # a pod takes its time to go
BY_PEOPLE = {
    "pod-killed": 0,  # somebody deletes a pod that runs
    "node-lost": 10_000,  # a node is removed, and comes again
    "node-drained": 10_000,  # cordoned, and opened again
    "node-shrunk": 10_000,  # it has half of what it had, and all again
    "foreign-pod": 10_000,  # another scheduler places a pod
    "submitted-twice": 20_000,  # manifests come again under their Idempotency-Key
}
KINDS = {
    **PUBLISHED, **ACKNOWLEDGED, **TIMED, **SAVED, **BOUND, **CREATED, **DELETED, **BY_PEOPLE,
}  # fmt: skip
LATER = {  # the kinds that came later, by the name under which those of a time are drawn
    "later": ("clock-set", "moved", "disk-slow", "create-late", "submitted-twice"),
    "latest": ("node-gone",),
    "conflicts": ("bind-elsewhere", "bind-conflict", "create-conflict"),
}
_OF_THE_SHIM = {**SAVED, **BOUND, **CREATED, **DELETED, **BY_PEOPLE}
_SERVICES = ("core", "core", "shim_adapter", "shim_adapter", "timers", "api")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``amount`` is limited by its kind; ``choice`` selects its target."""

    index: int
    kind: str
    service: str
    at_ns: int
    amount_ns: int
    choice: int

    def __str__(self) -> str:
        moment = f"{self.at_ns / 1e9:.3f} s"
        amount = f" ({self.amount_ns / 1e9:.3f} s)" if self.amount_ns else ""
        return f"{self.index}: {self.kind} of {self.service} from {moment} on{amount}"


def drawn(seed: int) -> list[Fault]:
    """Return the faults of a seed, by index; their number varies.

    The kinds added later (LATER) are drawn separately, with indices from MAX_FAULTS on, MAX_LATER
    for each group: without them, a seed is the same run as before they were added.
    """
    rng = Random(f"faults/{seed}")  # noqa: S311 - repeatable is what it has to be
    later = [kind for kinds in LATER.values() for kind in kinds]
    kinds = [kind for kind in KINDS if kind not in later]
    if rng.randrange(2):  # a seed of few kinds meets the rare combinations of those more often
        kinds = rng.sample(kinds, 4)
    found = [_one(rng, index, kinds) for index in range(rng.randint(2, MAX_FAULTS))]
    for time, (name, kinds_then) in enumerate(LATER.items()):
        rng = Random(f"{name}/{seed}")  # noqa: S311 - as above
        first = MAX_FAULTS + time * MAX_LATER
        most = min(MAX_LATER, len(kinds_then) + 1)
        found += [_one(rng, first + at, kinds_then) for at in range(rng.randint(0, most))]
    return found


def _one(rng: Random, index: int, kinds: Sequence[str]) -> Fault:
    kind = rng.choice(kinds)
    service = "shim_adapter" if kind in _OF_THE_SHIM else rng.choice(_SERVICES)
    most_ns = milliseconds(KINDS[kind])
    amount_ns = rng.randrange(milliseconds(100), most_ns) if most_ns else 0
    return Fault(index, kind, service, rng.randrange(FAULTY_NS), amount_ns, rng.randrange(1 << 16))


class Armed:
    """The faults that have not happened yet, and those that have, with their time."""

    def __init__(self, faults: list[Fault]) -> None:
        self._waiting = sorted(faults, key=lambda fault: (fault.at_ns, fault.index))
        self.is_drawn = bool(faults)
        self.happened: list[tuple[int, Fault]] = []
        self.is_on = True

    def take(self, kinds: dict[str, int], service: str, now_ns: int) -> Fault | None:
        """Return the first armed fault of these kinds for a service; it happens now."""
        if not self.is_on:
            return None
        for at, fault in enumerate(self._waiting):
            if fault.at_ns > now_ns:
                return None
            if fault.service == service and fault.kind in kinds:
                del self._waiting[at]
                self.happened.append((now_ns, fault))
                return fault
        return None

    def take_timed(self, kinds: dict[str, int]) -> list[Fault]:
        """Return the faults of these kinds, by time; the caller makes them happen."""
        return [fault for fault in self._waiting if fault.kind in kinds]

    def note(self, fault: Fault, now_ns: int) -> None:
        """Record that a timed fault happens now."""
        if fault in self._waiting:
            self._waiting.remove(fault)
            self.happened.append((now_ns, fault))
