"""Time and what is shown meanwhile, judged in virtual time while a run goes on.

Rule 1: a part can work while an instance of it runs, the broker answers and no inbox refuses.
        Within BOUND_NS of the moment from which it can, and everything that it needs, one instance
        works; two only for the silence of the one that lost its place.
Rule 2: a message that waits for such a part, or is in its hands, is acknowledged within BOUND_NS;
        a timer has fired BOUND_NS after it was due, and the core and the timers were at work.
Rule 3: the API shows a part as away, or at work, as it is: within its silence of the end, and
        within BOUND_NS of the start. What it showed once it shows on, with the last known states
        while no core runs; where nothing is on its way, it shows what the core has.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.api.machine import ApiMachine
from services.api.replica import Replica
from services.core.scheduler.scheduler import Scheduler
from services.timers.wheel import TimerWheel
from shared.messages.envelope import PARTITIONED
from shared.model.names import DEFAULT_PARTITION
from shared.model.units import NANOS_PER_SECOND, seconds
from shared.runtime.beats import silence_ns
from shared.runtime.host import Host
from tools.simulate import oracle
from tools.simulate.deployment import INSTANCES, Deployment
from tools.simulate.faults import ACKNOWLEDGED, PUBLISHED
from tools.simulate.instance import HEARTBEAT_NS
from tools.simulate.watch import timers_of

BOUND_NS = seconds(10)
LOOK_SECONDS = 0.5
NOTICED_NS = silence_ns(HEARTBEAT_NS)  # for which who lost its place may take itself for at work
AGREES_NS = seconds(5)  # between two comparisons of what is shown with what the core has
_FLYING_NS = seconds(4)  # for which what a dead instance sent may be on its way
_SHOWN_AWAY_NS = silence_ns(HEARTBEAT_NS) + _FLYING_NS
_NEEDS = {
    "shim_adapter": ("shim_adapter",),
    "core": ("core", "shim_adapter"),
    "timers": ("timers", "core", "shim_adapter"),
    "api": ("api", "core", "shim_adapter"),
}
_Shown = dict[str, tuple[object, ...]]


@dataclass(slots=True)
class Part:
    """A service of a partition: whether an instance works, and since when it is so."""

    service: str
    partition: str
    is_at_work: bool = False
    since_ns: int = 0
    doubled_ns: int = 0  # since when two instances work, 0 while none or one does
    unheard_ns: int = 0  # since when none handles its heartbeats, 0 while one does
    is_reported: bool = False

    def __str__(self) -> str:
        where = f" of {self.partition}" if self.partition != DEFAULT_PARTITION else ""
        return f"{self.service}{where}"


@dataclass(slots=True)
class Followed:
    """What one process of the API shows. ``last``: the states since no core works, by partition."""

    host: Host
    replica: Replica
    since_ns: int
    had: dict[str, None] = field(default_factory=dict)  # partitions that it showed
    last: dict[str, _Shown] = field(default_factory=dict)


class Timing:
    """Looks at a deployment every LOOK_SECONDS."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._loop = deployment.loop
        self._troubled_ns = {service: 0 for service, _ in INSTANCES}  # when it last could not work
        self._noted = 0  # faults
        self._parts = [
            Part(service, name)
            for service, _ in INSTANCES
            for name in (deployment.partitions if service in PARTITIONED else (DEFAULT_PARTITION,))
        ]
        self._late: dict[object, None] = {}  # messages and timers that were reported
        self._followed: Followed | None = None
        self._agreed_ns = 0
        self._down_ns: dict[str, int] = {}  # services of which no process runs, since when
        self._starts = {service: 0 for service, _ in INSTANCES}  # of processes, at the last look

    def check(self) -> None:
        """Check everything once."""
        now_ns = self._loop.now_ns
        self._note_trouble(now_ns)
        for part in self._parts:
            self._judge_part(part, now_ns)
        self._judge_inboxes(now_ns)
        self._judge_timers(now_ns)
        self._judge_shown(now_ns)

    # --- who can work ---------------------------------------------------------------------------

    def _note_trouble(self, now_ns: int) -> None:
        broker = self._deployment.broker
        is_out = not broker.is_up or any(until > now_ns for until in broker.refusing.values())
        is_full = self._deployment.disk.is_full
        for service in self._troubled_ns:
            instances = list(self._deployment.of(service))
            starts = sum(instance.starts for instance in instances)
            is_running = any(instance.is_running for instance in instances)
            if is_running or starts > self._starts[service]:
                self._down_ns.pop(service, None)  # also if a process started and ended since
            if not is_running:
                self._down_ns.setdefault(service, now_ns)
            self._starts[service] = starts
            if is_out or service in self._down_ns or (is_full and service == "shim_adapter"):
                self._trouble(service, now_ns)
        for moment_ns, fault in self._deployment.armed.happened[self._noted :]:
            said = fault.kind in PUBLISHED or fault.kind in ACKNOWLEDGED
            late_ns = fault.amount_ns if fault.kind == "delay" else _FLYING_NS if said else 0
            self._trouble(fault.service, moment_ns + late_ns)
        self._noted = len(self._deployment.armed.happened)

    def _trouble(self, service: str, until_ns: int) -> None:
        self._troubled_ns[service] = max(self._troubled_ns[service], until_ns)

    def _calm_ns(self, *services: str) -> int:
        """Return since when nothing has kept services, and what they need, from their work."""
        return max(self._troubled_ns[need] for service in services for need in _NEEDS[service])

    # --- rule 1 ---------------------------------------------------------------------------------

    def _judge_part(self, part: Part, now_ns: int) -> None:
        standing = list(self._standing(part))
        count = sum(map(_works, standing))
        is_heard = any(host.is_at_work for host in standing)  # one that recovers is, too
        part.unheard_ns = 0 if is_heard else part.unheard_ns or now_ns
        if bool(count) != part.is_at_work:
            part.is_at_work, part.since_ns, part.is_reported = bool(count), now_ns, False
        free_ns = max(part.since_ns, self._calm_ns(part.service))
        if not count and now_ns - free_ns > BOUND_NS and not part.is_reported:
            part.is_reported = True
            self._deployment.report(f"no {part} has been at work for {_s(now_ns - free_ns)}")
        part.doubled_ns = (part.doubled_ns or now_ns) if count > 1 else 0
        if part.doubled_ns and now_ns - part.doubled_ns > NOTICED_NS:
            self._report_once(part, f"{count} instances of {part} are at work at once")

    def _standing(self, part: Part) -> Iterator[Host]:
        """Yield the hosts of a part that may be at work: of processes that run, and not stopped."""
        for instance in self._deployment.of(part.service):
            if instance.is_running and instance.is_active(part.partition):
                yield instance.hosts[part.partition]

    # --- rule 2 ---------------------------------------------------------------------------------

    def _judge_inboxes(self, now_ns: int) -> None:
        broker = self._deployment.broker
        for inbox in broker.inboxes.values():
            service = inbox.address.service
            if service not in _NEEDS or not (inbox.is_durable or inbox.readers):
                continue
            held = [next(iter(reader._held)) for reader in inbox.readers if reader._held]
            tags = [*held, *(item.tag for item in list(inbox.waiting)[:1])]
            oldest = min(tags, default=0)
            since_ns = max(broker.arrived_ns[oldest - 1], self._calm_ns(service)) if oldest else 0
            if oldest and now_ns - since_ns > BOUND_NS and oldest not in self._late:
                self._late[oldest] = None
                count = len(inbox.waiting) + sum(len(reader._held) for reader in inbox.readers)
                self._deployment.report(
                    f"{count} messages in {inbox.name}, the oldest for {_s(now_ns - since_ns)}"
                )

    def _judge_timers(self, now_ns: int) -> None:
        if now_ns - self._calm_ns("timers") <= BOUND_NS:
            return
        for partition in self._deployment.partitions:
            instance = self._deployment.working("core", partition)
            core = self._deployment.core(partition)
            if instance is None or not isinstance(core, Scheduler):
                continue
            by_its_clock_ns = instance.hosts[partition].now_ns
            at_work_ns = now_ns - self._at_work_since_ns(partition)
            for name, (generation, due_ns) in timers_of(core).items():
                late_ns = min(by_its_clock_ns - due_ns, at_work_ns)
                if late_ns > BOUND_NS and (name, generation) not in self._late:
                    self._late[name, generation] = None
                    self._deployment.report(f"timer {name} is {_s(late_ns)} late")

    def _at_work_since_ns(self, partition: str) -> int:
        """Return since when those work whom a timer of a partition needs: one may take over."""
        needed = [
            part
            for part in self._parts
            if part.service in {"core", "timers"} and part.partition == partition
        ]
        return max(part.since_ns for part in needed)

    # --- rule 3 ---------------------------------------------------------------------------------

    def _judge_shown(self, now_ns: int) -> None:
        followed = self._followed = self._follow(now_ns)
        if followed is None:
            return
        works = followed.replica.works()
        listened_ns = now_ns - max(followed.since_ns, self._calm_ns("api"))
        for part in self._parts:
            shown = works.get((part.service, part.partition))
            lasted_ns = min(now_ns - part.since_ns, now_ns - self._calm_ns(part.service))
            if shown is False and part.is_at_work and min(lasted_ns, listened_ns) > BOUND_NS:
                self._report_once(part, f"the API shows no {part}, which works")
            elif shown and part.unheard_ns and now_ns - self._heard_ns(part) > _SHOWN_AWAY_NS:
                self._report_once(part, f"the API shows a {part} at work, where none is")
        for partition in self._deployment.partitions:
            self._judge_state(followed, partition)
        if now_ns - self._agreed_ns > AGREES_NS and self._is_calm(now_ns):
            self._agreed_ns = now_ns
            self._compare(followed.host)

    def _heard_ns(self, part: Part) -> int:
        """Return since when a part is unheard, also if it worked only between two looks."""
        worked_ns = self._deployment.broker.worked_ns.get((part.service, part.partition), 0)
        resumed_ns = max(instance.resumed_ns for instance in self._deployment.of(part.service))
        return max(part.unheard_ns, worked_ns, resumed_ns)

    def _report_once(self, part: Part, sentence: str) -> None:
        key = part.service, part.partition, part.since_ns
        if key not in self._late:
            self._late[key] = None
            self._deployment.report(sentence)

    def _follow(self, now_ns: int) -> Followed | None:
        """Return what the process shows that is the API now; None while it is down or stopped."""
        (instance,) = self._deployment.of("api")
        host = instance.host
        if host is None or not instance.is_running:
            return None
        if self._followed is not None and self._followed.host is host:
            return self._followed
        replica = Replica(lambda: host, lambda: _api(host), beats=True)
        return Followed(host, replica, now_ns)

    def _judge_state(self, followed: Followed, partition: str) -> None:
        projection = followed.replica.partitions.get(partition)
        if projection is None or projection.model.partition is None:
            if partition in followed.had:
                self._deployment.report(f"the API shows nothing of {partition} any more")
                del followed.had[partition]
            return
        followed.had[partition] = None
        down_ns = self._down_ns.get("core")
        if down_ns is None or self._loop.now_ns - down_ns <= _FLYING_NS:
            followed.last.pop(partition, None)
            return
        shown: _Shown = {
            name: (view.summary.state, *view.asks, *view.allocations)
            for name, view in projection.model.applications.items()
        }
        if followed.last.setdefault(partition, shown) != shown:
            self._deployment.report(f"without a core the API shows another state of {partition}")
            followed.last[partition] = shown

    def _is_calm(self, now_ns: int) -> bool:
        calm_ns = self._calm_ns(*_NEEDS)
        return now_ns - calm_ns > BOUND_NS and self._deployment.is_quiet()

    def _compare(self, host: Host) -> None:
        for partition in self._deployment.partitions:
            core = self._deployment.core(partition)
            if core is not None and core.is_synced:
                for sentence in oracle.shown(core, _api(host)):
                    self._deployment.report(f"with nothing on its way {sentence}")


def _works(host: Host) -> bool:
    """Return whether a host is at work, and its machine knows what it needs."""
    match getattr(host.machine, "inner", host.machine):
        case Scheduler() as core:
            knows = core.is_synced
        case TimerWheel() as wheel:
            knows = wheel._is_synced
        case ApiMachine() as api:
            knows = api.is_ready
        case _:
            knows = True
    return host.is_at_work and knows


def _api(host: Host) -> ApiMachine:
    machine = getattr(host.machine, "inner", host.machine)
    assert isinstance(machine, ApiMachine)
    return machine


def _s(nanoseconds: int) -> str:
    return f"{nanoseconds / NANOS_PER_SECOND:.1f} s"
