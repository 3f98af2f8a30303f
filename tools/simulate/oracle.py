"""The invariants of a run at rest, and after everything has been deleted.

Submitted applications have ended, run, or wait for a reason of the vocabulary; core, shim adapter,
timers and API agree; sums are exact; nothing is left of ended applications.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

from services.api.machine import ApiMachine
from services.core.scheduler.model.rows import Queue, depth_first
from services.core.scheduler.report.views import node_state, queue_state, refusals_in
from services.core.scheduler.scheduler import Scheduler
from services.shim_adapter.machine import ShimMachine
from services.shim_adapter.mirror.recovery import is_to_be_asked
from services.shim_adapter.records import ApplicationRecord, PodRecord
from services.timers.wheel import TimerWheel
from shared.messages.commands import SubmitResult
from shared.messages.envelope import PARTITIONED
from shared.messages.state import Waiting
from shared.messages.trace import causes_of
from shared.model.reasons import Reason
from shared.model.resources import without_zeros
from shared.model.states import ENDED, ApplicationState
from tools.invariants import violations
from tools.simulate import answers
from tools.simulate.deployment import Deployment
from tools.simulate.people import Users
from tools.simulate.watch import timers_of

MOST_TOLD = 20  # sentences of each check of the oracle; the others are omitted
_STALE_WORLD = "StaleWorldError"


def at_rest(deployment: Deployment, people: Users) -> list[str]:
    """Return a sentence for every violated invariant at rest."""
    found = list(_of_instances(deployment))
    shim, api = deployment.shim, deployment.api
    if shim is None or api is None:
        return [*found, "a service has no active instance"]
    for partition in deployment.partitions:
        found += _partition_at_rest(deployment, partition, shim, api)
    found += _shared(deployment)
    found += answers.of_who_works(deployment)
    found += _pods(deployment, shim)
    found += _made(deployment, people)
    found += _traced(deployment, api)
    return found[:MOST_TOLD]


def _partition_at_rest(
    deployment: Deployment, partition: str, shim: ShimMachine, api: ApiMachine
) -> list[str]:
    core, wheel = deployment.core(partition), deployment.wheel(partition)
    if core is None or wheel is None:
        return [f"partition {partition} has no active core, or no timers"]
    if not core.is_synced:
        return [f"the core of partition {partition} has not recovered"]
    found = violations(core.partition)
    found += _core_and_cluster(core, shim)
    found += _asked(core, shim)
    found += _applications(core, shim)
    found += _timers(core, wheel)
    found += shown(core, api)
    found += answers.of_partition(core, api)
    return found


def _shared(deployment: Deployment) -> Iterator[str]:
    """Check that each partition has one active process, and that they are shared evenly."""
    for service in PARTITIONED:
        held = {
            f"{service}-{instance.number}": [
                name for name in deployment.partitions if instance.is_active(name)
            ]
            for instance in deployment.of(service)
        }
        counts = [len(names) for names in held.values()]
        if sum(counts) != len(deployment.partitions) or max(counts) - min(counts) > 1:
            yield f"the partitions are not shared: {held}"


def at_the_end(deployment: Deployment) -> list[str]:
    """Return a sentence for everything left after all was deleted."""
    shim = deployment.shim
    if shim is None:
        return ["at the end the shim adapter has no active instance"]
    found: list[str] = []
    for partition in deployment.partitions:
        core, wheel = deployment.core(partition), deployment.wheel(partition)
        if core is None or wheel is None:
            return [f"at the end partition {partition} has no active core, or no timers"]
        found += [f"at the end application {name} is left" for name in core.partition.applications]
        found += _left_in_core(core)
        found += _timers(core, wheel)
    found += _left_in_cluster(shim)
    found += _of_instances(deployment)
    return found[:MOST_TOLD]


def _left_in_core(core: Scheduler) -> Iterator[str]:
    partition = core.partition
    for node in partition.nodes.nodes.values():
        left = [*node.allocations, *node.reservations]
        if left or without_zeros(node.reserved):
            yield f"at the end node {node.node_id} holds {left}, keeps {dict(node.reserved)}"
    for queue in depth_first(partition.root):
        sums = (queue.allocated, queue.pending, queue.promised, queue.reserved, queue.preempting)
        if any(map(without_zeros, sums)) or queue.running_apps:
            yield f"at the end queue {queue.path} counts {[dict(s) for s in sums]}"
    for tracker in partition.users.all():
        if any(map(without_zeros, tracker.usage.values())) or any(tracker.running.values()):
            yield f"at the end {tracker.title} uses {tracker.usage}"


def _left_in_cluster(shim: ShimMachine) -> Iterator[str]:
    for pod in shim.world.all_pods():
        if pod.node and not (pod.has_ended or pod.spec.foreign):
            yield f"at the end pod {pod.spec.name} runs on {pod.node}"
        elif pod.spec.placeholder and not pod.has_ended:
            yield f"at the end placeholder {pod.spec.name} is left"


def _of_instances(deployment: Deployment) -> Iterator[str]:
    """Check that no process crashed by itself, and nothing was dead-lettered."""
    for instance in deployment.instances:
        for crash in instance.crashes:
            if _STALE_WORLD not in crash:  # the fence that it is to run into
                yield f"crashed: {crash}"
        instance.crashes.clear()
    for letter in deployment.broker.dead_letters:
        yield f"dead-lettered at {letter.inbox}: {letter.kind}: {letter.reason}"
    deployment.broker.dead_letters.clear()


def _core_and_cluster(core: Scheduler, shim: ShimMachine) -> Iterator[str]:
    """Compare the core's nodes and allocations with the cluster's."""
    world, nodes = shim.world, core.partition.nodes.nodes
    there_are = {
        name: node for name, node in world.nodes.items() if node.partition == core.partition.name
    }
    if nodes.keys() != there_are.keys():
        yield f"the core knows the nodes {sorted(nodes)}, there are {sorted(there_are)}"
    for name, node in there_are.items():
        known = nodes.get(name)
        if known is None:
            continue
        if without_zeros(known.capacity) != without_zeros(node.capacity):
            yield f"node {name} has {dict(node.capacity)}, the core knows {dict(known.capacity)}"
        if known.schedulable == node.is_cordoned:
            yield f"node {name} cordoned: {node.is_cordoned}, the core takes the opposite"
        there = {pod.uid for pod in world.on_nodes.of(name)}
        held = {*known.allocations, *known.foreign}
        for key in sorted(held - there):
            yield f"the core holds {_named(shim, key)} on {name}, where it is not"
        for key in sorted(there - held):
            yield f"{_named(shim, key)} is on {name}, and the core does not know"


def _named(shim: ShimMachine, key: str) -> str:
    pod = shim.world.pods.get(key)
    return f"pod {pod.spec.name} ({key})" if pod is not None else f"pod {key}, which is no more"


def _asked(core: Scheduler, shim: ShimMachine) -> Iterator[str]:
    """Compare the core's asks with the waiting pods."""
    asked = {ask.key for a in core.partition.applications.values() for ask in a.asks()}
    swapped = {
        swap.ask.key
        for application in core.partition.applications.values()
        for swap in application.replacing.values()
    }
    wanted = {
        pod.uid
        for application in _of_partition(shim, core).values()
        for pod in shim.world.pods_of(application.application_id)
        if is_to_be_asked(application, pod)
    }
    for key in sorted(asked - wanted):
        yield f"the core has an ask for {_named(shim, key)}, which is not to be asked for"
    for key in sorted(wanted - asked - swapped):
        yield f"{_named(shim, key)} waits, and the core has no ask for it"


def _of_partition(shim: ShimMachine, core: Scheduler) -> dict[str, ApplicationRecord]:
    """Return the applications of a core's partition."""
    name = core.partition.name
    return {key: a for key, a in shim.world.applications.items() if a.partition == name}


def _pods(deployment: Deployment, shim: ShimMachine) -> Iterator[str]:
    """Check that every live pod has an application, and runs or waits for a reason."""
    for pod in shim.world.all_pods():
        if not (pod.has_ended or pod.spec.foreign):
            application = shim.world.applications.get(pod.spec.application_id)
            if application is None or not application.is_live:
                yield f"pod {pod.spec.name} is left of {pod.spec.application_id}, which has ended"
                continue
            core = deployment.core(application.partition)
            if core is not None:
                yield from _pod(core, pod)


def _applications(core: Scheduler, shim: ShimMachine) -> Iterator[str]:
    """Check that every application ended, runs, or waits for a known reason."""
    known = core.partition.applications
    live = {name for name, item in _of_partition(shim, core).items() if item.is_live}
    for name in sorted(known.keys() ^ live):
        yield f"application {name}: core {name in known}, shim adapter {name in live}"
    for name, application in known.items():
        if application.released:
            yield f"application {name}: {dict(application.released)} go for ever"
        is_ending = application.state == ApplicationState.COMPLETING and application.timers
        if not (application.allocations or is_ending or list(application.asks())):
            record = shim.world.applications.get(name)
            if record is None or not record.is_announced:
                yield f"application {name} is {application.state} with nothing in it"


def _pod(core: Scheduler, pod: PodRecord) -> Iterator[str]:
    name = pod.spec.application_id
    if pod.deletion_ns:
        yield f"pod {pod.spec.name} of {name} is being deleted for ever"
    elif not pod.spec.placeholder and not pod.node and name in core.partition.applications:
        yield from _explained(core, name, pod.spec.name)


def _explained(core: Scheduler, name: str, pod: str) -> Iterator[str]:
    """Check that an application with a waiting pod has a reason of the vocabulary."""
    application = core.partition.applications[name]
    reasons = [refusal.reason for refusal in answers.refusals_of(application)]
    if core.partition.root.max_resource is None:  # without a node nothing is tried
        reasons.append(Reason.NO_NODES)
    if not reasons or any(reason not in Reason for reason in reasons):
        yield f"pod {pod} of {name} ({application.state}) waits without a reason: {reasons}"


def _timers(core: Scheduler, wheel: TimerWheel) -> Iterator[str]:
    """Compare the timers that the core has armed with those of the wheel."""
    armed = {name: generation for name, (generation, _) in timers_of(core).items()}
    there = {name: timer.generation for name, timer in wheel._timers.items()}
    for name in sorted(armed.keys() | there.keys()):
        if armed.get(name) != there.get(name):
            yield f"timer {name}: core {armed.get(name)}, timers {there.get(name)}"


def shown(core: Scheduler, api: ApiMachine) -> Iterator[str]:
    """Compare the API's read model with the core's state."""
    partition = core.partition
    followed = api.partitions.get(partition.name)
    if followed is None or not followed.is_ready:
        yield f"the API does not follow partition {partition.name}"
        return
    model = followed.model
    nodes = {name: node_state(node) for name, node in partition.nodes.nodes.items()}
    shown = {name: view.state for name, view in model.nodes.items()}
    yield from _same("node", nodes, shown)
    queues = {queue.path: queue_state(queue) for queue in depth_first(partition.root)}
    yield from _same("queue", queues, model.queues)
    refused = {queue.path: _refused(queue) for queue in depth_first(partition.root)}
    published = {path: held.by_asks for path, held in model.refusals.items()}
    either = {**refused, **published}
    yield from _same("refusals", refused, {path: published.get(path, {}) for path in either})
    apps = {name: str(item.state) for name, item in partition.applications.items()}
    yield from _same(
        "application", apps, {n: v.summary.state for n, v in model.applications.items()}
    )
    for name, view in model.applications.items():
        application = partition.applications.get(name)
        if application is None:
            continue
        asks = {ask.key for ask in application.asks()}
        if view.asks.keys() != asks:
            yield f"the API shows asks {sorted(view.asks)} of {name}, there are {sorted(asks)}"
        places = {key: item.node_id for key, item in application.allocations.items()}
        told = {key: item.node_id for key, item in view.allocations.items()}
        if places != told:
            yield f"the API shows {told} of {name}, there is {places}"
    for key, view in model.ended.items():
        if view.summary.state not in (*ENDED, "Expired") or view.asks:
            yield f"the API shows {key} among those that ended: {view.summary.state}"


def _refused(queue: Queue) -> dict[str, Waiting | None]:
    return {refusal.asks: refusal.why for refusal in refusals_in(queue)}


def _same(what: str, there: Mapping[str, object], shown: Mapping[str, object]) -> Iterator[str]:
    for name in sorted(there.keys() | shown.keys()):
        if there.get(name) != shown.get(name):
            yield f"the API shows of {what} {name} {_difference(there.get(name), shown.get(name))}"


def _difference(there: object, shown: object) -> str:
    """Describe the fields in which two records differ, or both values."""
    if there is None or type(there) is not type(shown) or not is_dataclass(there):
        return f"{shown}, it is {there}"
    names = [field.name for field in fields(there)]
    apart = [name for name in names if getattr(there, name) != getattr(shown, name)]
    return ", ".join(f"{n} {getattr(shown, n)}, it is {getattr(there, n)}" for n in apart)


def _made(deployment: Deployment, people: Users) -> Iterator[str]:
    """Check that submissions were carried out once, and answered equally each time."""
    for name, count in deployment.disk.made.items():
        if count > people.submitted.get(name, 0):
            yield f"pod {name} was made {count} times, submitted {people.submitted.get(name)}"
    yield from _answered_by_key(deployment, people)
    for message_id, handed_in in deployment.broker.commands.items():
        for pod in handed_in.pods:
            is_wanted = not {pod.name, pod.application_id} & people.deleted.keys()
            if is_wanted and (pod.namespace, pod.name) not in deployment.disk.made:
                yield f"pod {pod.name} was handed in with {message_id}, and never made"
    for reply_to in deployment.broker.contradicted:
        yield f"{reply_to} was answered twice, and not the same"


def _answered_by_key(deployment: Deployment, people: Users) -> Iterator[str]:
    """Check that answered manifests with a key were carried out, and answered equally."""
    for key, came in people.answered.items():
        heard = [answer for answer in came if isinstance(answer, SubmitResult)]
        if any(answer != heard[0] for answer in heard):
            yield f"manifests of key {key} were answered {heard}"
        made = {item.name for answer in heard for item in answer.accepted}
        for name in sorted(made):
            if ("default", name) not in deployment.disk.made:
                yield f"pod {name} was answered as made, and never was"


def _traced(deployment: Deployment, api: ApiMachine) -> Iterator[str]:
    """Check that every decision is in the trace of its application, below its cause.

    A cause whose service died while publishing it may be missing.
    """
    names = dict.fromkeys(name for name, _ in deployment.broker.decided)
    stories = {name: api.partitions.stories.of(name) for name in names}
    cut = {step_id for _, step_id in deployment.broker.cut}
    told = {(name, step.record.message_id) for name in names for step in stories[name]}
    for (name, step_id), said in deployment.broker.decided.items():
        if (name, step_id) not in told:
            yield f"the trace of {name} lacks what was decided: {said}"
    for name, story in stories.items():
        for step in story:
            causes = causes_of(step.record, step.at)
            if step.parent not in causes and cut.isdisjoint(causes):
                yield f"in the trace of {name} nothing led to {step.record.kind}: {causes}"
