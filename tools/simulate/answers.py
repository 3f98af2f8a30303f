"""Checks the API's answers at rest: why, metrics and events agree with the core's state."""

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.parser import text_string_to_metric_families as families_of

from services.api.machine import ApiMachine
from services.api.projection.model import Model
from services.api.why.standing import why
from services.api.yunikorn.metrics import yunikorn_metrics
from services.core.scheduler.model.rows import Application
from services.core.scheduler.scheduler import Scheduler
from shared.messages.envelope import PARTITIONED
from shared.model.event_codes import DETAIL_OF_STATE, EventType
from shared.model.names import DEFAULT_PARTITION
from shared.model.reasons import Reason, Refusal
from tools.simulate.deployment import Deployment

_STATE_OF = {int(detail): state for state, detail in DETAIL_OF_STATE.items()}


def refusals_of(application: Application) -> list[Refusal]:
    """Return why an application waits: refusals of the whole, of shapes, and of single asks."""
    groups = application.groups.values()
    found = [application.refusal, *(group.bucket.refusal for group in groups)]
    found += [group.refused[0] for group in groups if group.refused is not None]
    return [refusal for refusal in found if refusal is not None]


def of_partition(core: Scheduler, api: ApiMachine) -> Iterator[str]:
    """Yield the API's answers about a partition that differ from its state."""
    followed = api.partitions.get(core.partition.name)
    if followed is None or not followed.is_ready:
        return  # which is a sentence of its own
    for name, application in core.partition.applications.items():
        yield from _why(followed.model, name, application)
    yield from _metrics(followed.model, core)
    yield from _events(followed.model, core)


def _why(model: Model, name: str, application: Application) -> Iterator[str]:
    """Compare the answer of why with the refusals of the application's asks."""
    answer = why(model, name)
    if answer is None:
        yield f"why says nothing of {name}, which is {application.state}"
        return
    if answer.state != application.state:
        yield f"why says {answer.state} of {name}, which is {application.state}"
    reasons = {str(refusal.reason) for refusal in refusals_of(application)}
    found = {wait.reason for wait in answer.waits}
    unknown = sorted(found - set(map(str, Reason)))
    if unknown:
        yield f"why says of {name} {unknown}, which is no reason"
    asks = list(application.asks())
    if asks and reasons and not found & reasons:
        yield f"why says of {name} {sorted(found)}, refused it was for {sorted(reasons)}"
    if answer.verdict == "running" and not application.allocations:
        yield f"why says that {name} runs, which has nothing"


def _metrics(model: Model, core: Scheduler) -> Iterator[str]:
    """Compare gauges with the core's state."""
    text = yunikorn_metrics([model], model.events).decode()
    samples = [sample for family in families_of(text) for sample in family.samples]
    shown = {
        (sample.name, sample.labels.get("queue", ""), sample.labels.get("state", "")): sample.value
        for sample in samples
    }
    applications = core.partition.applications.values()
    states = Counter((a.queue.path, str(a.state).lower()) for a in applications)
    for (queue, state), count in sorted(states.items()):
        found = shown.get(
            ("yunikorn_queue_app", queue, state), count
        )  # of some states there is none
        if found != count:
            yield f"metrics show {found} applications {state} in {queue}, there are {count}"
    waiting = sum(item.value for item in samples if item.name == "muster_asks_waiting")
    asks = sum(1 for application in applications for _ in application.asks())
    if waiting != asks:
        yield f"metrics show {waiting} asks that wait, there are {asks}"
    nodes = core.partition.nodes.nodes.values()
    active = shown["yunikorn_scheduler_node", "", "active"]
    if active != sum(node.schedulable for node in nodes):
        yield f"metrics show {active} active nodes of {len(nodes)}"


def _events(model: Model, core: Scheduler) -> Iterator[str]:
    """Compare the last state in each application's events with its state."""
    last: dict[str, str] = {}
    for event in model.events.newest(model.events.lowest):
        state = _STATE_OF.get(event.change_detail)
        if event.type == EventType.APP and state is not None:
            last[event.object_id] = state
    for name, application in core.partition.applications.items():
        if last.get(name, application.state) != application.state:
            yield f"the events of {name} end with {last[name]}, it is {application.state}"


def of_who_works(deployment: Deployment) -> Iterator[str]:
    """Check that exactly one instance of each part reports that it is at work."""
    for service, names in _parts(deployment.partitions):
        for name in names:
            hosts = [i.hosts[name] for i in deployment.of(service) if name in i.hosts]
            at_work = [host for host in hosts if host.is_at_work]
            if len(at_work) != 1:
                yield f"{len(at_work)} instances of {service} of {name} are at work"
            synced = sum(
                number
                for host in hosts
                for (what, *_), number in host.figures().items()
                if what == "is_synced" and service == "core"
            )
            if service == "core" and synced != 1:
                yield f"metrics show {synced} cores of {name} at work"


def _parts(partitions: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for service in ("core", "timers", "shim_adapter"):
        is_each = service in PARTITIONED
        yield service, tuple(partitions) if is_each else (DEFAULT_PARTITION,)
