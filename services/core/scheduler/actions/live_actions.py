"""The actions on the live partition: a picture of it as a session, and what comes of a statement.

Asks that are refused have the actions run over a session of the partition: a queue's guarantee is
its quota, its max its limit, an application a job, its placeholders and pods the tasks. What a
statement decides is carried out at once: its victims are released in one message, and the nodes are
kept for those it was done for, who start when the room is there.

Under the policy ``yunikorn`` consolidation and stale gang eviction may run so too. What protects
from preemption there protects from being moved: a queue that disables it, a fence around the ask.

Placing what fits is the cycle's own work and is not done here. Accelerators and any other type that
a node has count as vcore and memory do; ``pods`` is left to the cycle.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from services.core.scheduler.actions.victims import evict
from services.core.scheduler.kai import engine
from services.core.scheduler.kai.session import (
    NO_NODE,
    UNLIMITED,
    Job,
    Session,
    SessionSettings,
    Status,
    Task,
)
from services.core.scheduler.kai.session import Queue as SessionQueue
from services.core.scheduler.kai.statement import Decision
from services.core.scheduler.model.application import Application
from services.core.scheduler.model.nodes import Node, matches
from services.core.scheduler.model.queue_settings import DISABLED, FENCE
from services.core.scheduler.model.queues import Queue, depth_first
from services.core.scheduler.model.settings import ALLOCATE, KAI, STALE, YUNIKORN
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Allocation
from shared.model.reasons import Reason
from shared.model.resources import PODS, ResourceView
from shared.model.units import NANOS_PER_SECOND

KAI_PRIORITY = 100


def run(partition: Partition, actions: tuple[str, ...]) -> int:
    """Run actions over the partition and carry out what they decide; return how many decisions."""
    wanted = [name for name in actions if name != ALLOCATE]
    if not wanted or not partition.nodes.nodes:
        return 0
    picture = Picture(partition)
    plugins = engine.DEFAULT_PLUGINS
    if partition.settings.policy == YUNIKORN:
        plugins = (*plugins, lambda registry: registry.victim.append(partial(_may_move, partition)))
    decisions = engine.run(picture.session, wanted, plugins)
    carry_out(partition, decisions)
    return len(decisions)


def _may_move(partition: Partition, _: str, victim: Job, job: Job) -> bool:
    """Return whether YuniKorn's own switches let a job be moved for another."""
    leaf = partition.applications[victim.name].queue
    if leaf.settings.preemption_policy == DISABLED:
        return False
    asking = partition.applications[job.name].queue
    fence = next((q for q in asking.lineage() if q.settings.preemption_policy == FENCE), None)
    return fence is None or fence in leaf.lineage()


class Picture:
    """A session of the partition as it is now."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._is_kai = partition.settings.policy == KAI
        self._nodes = list(partition.nodes.nodes.values())
        self._rows = {node.node_id: at for at, node in enumerate(self._nodes)}
        self._only: dict[Shape, frozenset[str] | None] = {}
        names = sorted({name for node in self._nodes for name in node.capacity} - {PODS})
        self._names = tuple(names)
        self._known = {*names, PODS}
        grace_ns = partition.settings.staleness_grace_ns
        settings = SessionSettings(
            staleness_grace_s=-1 if grace_ns < 0 else grace_ns // NANOS_PER_SECOND
        )
        capacity = np.array(
            [[_open_to_us(node, name) for name in names] for node in self._nodes], np.int64
        ).reshape(len(self._nodes), len(names))
        self.session = Session(names, list(self._rows), capacity, settings)
        self._promised = {
            name
            for queue in partition.queues.values()
            for name in (queue.guaranteed_resource or {})
        }
        self.session.held_pairs = frozenset(
            pair
            for pair, until_ns in partition.evictions.held_until_ns.items()
            if until_ns > partition.now_ns
        )
        self._add_queues()
        for number, application in enumerate(partition.applications.values()):
            self._add_job(application, number)
        for at, node in enumerate(self._nodes):
            if not node.schedulable:
                self.session.idle[at] = 0

    def _add_queues(self) -> None:
        made: dict[Queue, SessionQueue] = {}
        for number, queue in enumerate(depth_first(self._partition.root)):
            above = made.get(queue.parent) if queue.parent is not None else None
            limit = queue.max_resource if above is not None else None  # the nodes bound the root
            made[queue] = self.session.add_queue(
                SessionQueue(
                    queue.path,
                    number,
                    above,
                    KAI_PRIORITY,
                    quota=[self._quota(queue, name) for name in self._names],
                    limit=self._amounts(limit or {}, UNLIMITED),
                    weight=[1] * len(self._names),
                )
            )
        self._queues = made

    def _quota(self, queue: Queue, name: str) -> int:
        """Return what a queue is promised; a type that nobody is promised is everybody's."""
        if queue.parent is None or name not in self._promised:
            return UNLIMITED
        return (queue.guaranteed_resource or {}).get(name, 0)

    def _amounts(self, amounts: ResourceView, otherwise: int) -> list[int]:
        return [amounts.get(name, otherwise) for name in self._names]

    def _add_job(self, application: Application, number: int) -> None:
        allocations = application.allocations.values()
        asks = [ask for ask in application.asks() if self._may_start(application, ask)]
        kept = _with_kept_nodes(application)
        priorities = [item.priority for item in allocations]
        priorities += [ask.request.priority for ask in (*asks, *(ask for ask, _ in kept))]
        if not priorities:
            return
        job = Job(
            name=application.id,
            queue=self._queues[application.queue],
            priority=max(priorities),
            number=number,
            min_available=self._minimum(application),
            preemptible=all(allocation.allow_preempt_self for allocation in allocations),
            stale_for_s=stale_for_s(self._partition, application),
            runtime_s=(self._partition.now_ns - application.submission_time_ns) // NANOS_PER_SECOND,
        )
        for at, allocation in enumerate(allocations):
            job.tasks.append(self._running(application, allocation, job, at))
        for at, ask in enumerate(asks, start=len(job.tasks)):
            request = tuple(self._amounts(ask.shape.resource, 0))
            task = Task(ask.key, job, request, at, ask.request.priority)
            task.only_nodes = self._nodes_for(ask.shape)
            job.tasks.append(task)
        for at, (ask, node) in enumerate(kept, start=len(job.tasks)):
            if node.node_id in self._rows:
                job.tasks.append(self._waiting_at_its_node(ask, node, job, at))
        self.session.add_job(job)

    def _waiting_at_its_node(self, ask: Ask, node: Node, job: Job, at: int) -> Task:
        """Return an ask for which a node is kept: its room is nobody else's."""
        request = tuple(self._amounts(ask.shape.resource, 0))
        row = self._rows[node.node_id]
        task = Task(ask.key, job, request, at, ask.request.priority, Status.PIPELINED, row)
        task.is_kept = True
        return task

    def _may_start(self, application: Application, ask: Ask) -> bool:
        """Return whether an ask waits for room: not for its gang, and for no certain node."""
        group = application.group_of[ask.key]
        may_take = self._is_kai or ask.request.allow_preempt_other
        return (
            _waits_for_room(application)
            and not application.is_behind_overdue_gang
            and not group.bucket.is_blocked_by_user
            and application.hold(group) is None
            and may_take
            and not ask.has_preempted
            and not ask.shape.constraints.required_node
            and all(name in self._known for name, value in ask.shape.resource.items() if value > 0)
        )

    def _minimum(self, application: Application) -> int:
        """Return how many must start at once: a gang that does not run yet, all of it."""
        is_reserving = application.is_gang and application.pending_placeholders > 0
        if not is_reserving:
            return gang_minimum(application) if application.stale_since_ns else 1
        held = sum(len(counts.held) for counts in application.task_groups.values())
        return held + application.pending_placeholders

    def _running(self, application: Application, allocation: Allocation, job: Job, at: int) -> Task:
        key = allocation.allocation_key
        status = Status.RELEASING if key in application.released else Status.RUNNING
        if allocation.constraints.required_node or not allocation.allow_preempt_self:
            job.preemptible = False
        node = self._rows.get(allocation.node_id, NO_NODE)
        request = tuple(self._amounts(allocation.resource_per_alloc, 0))
        if node == NO_NODE:
            status = Status.SUCCEEDED
        return Task(key, job, request, at, allocation.priority, status, node)

    def _nodes_for(self, shape: Shape) -> frozenset[str] | None:
        if shape not in self._only:
            open_to = [
                node.node_id
                for node in self._nodes
                if node.schedulable and matches(shape.constraints, node)
            ]
            is_all = len(open_to) == len(self._nodes)
            self._only[shape] = None if is_all else frozenset(open_to)
        return self._only[shape]


def _with_kept_nodes(application: Application) -> list[tuple[Ask, Node]]:
    """Return the asks that will start on a node when others have gone from it, with the node."""
    reserved = [
        (held.ask, held.node) for held in application.reservations.values() if not held.is_ordinary
    ]
    covered = [
        (application.group_of[key].asks[key], cover.node)
        for key, cover in application.covers.items()
    ]
    return reserved + covered


def _waits_for_room(application: Application) -> bool:
    """Return whether it is room that an application lacks, not leave to run or a user's limit."""
    refusal = application.parked_refusal
    if refusal is None:
        return application.may_schedule
    by_user = any(tracker.gate is application.parked_at for tracker in application.trackers)
    is_for_room = refusal.reason in (Reason.GANG_HEADROOM, Reason.GANG_PLACES)
    return is_for_room and not by_user


def _open_to_us(node: Node, name: str) -> int:
    """Return how much of a node other schedulers have left."""
    return max(0, node.capacity.get(name, 0) - node.occupied.get(name, 0))


# --- carrying out -------------------------------------------------------------------------------


def gang_minimum(application: Application) -> int:
    """Return how many real pods a gang needs to be one: as many as replaced its placeholders."""
    return sum(counts.replaced for counts in application.task_groups.values())


def note_staleness(partition: Partition, application: Application) -> None:
    """Note that a gang that was whole runs below its minimum, or that it does no more.

    One of which a pod has succeeded is finishing.
    """
    if STALE not in partition.settings.actions or not application.is_gang:
        return
    groups = application.task_groups.values()
    real = sum(not allocation.placeholder for allocation in application.allocations.values())
    is_stale = (
        all(counts.is_used_up for counts in groups)
        and not application.succeeded
        and 0 < real < gang_minimum(application)
    )
    grace_ns = partition.settings.staleness_grace_ns
    if not is_stale:
        application.stale_since_ns = 0
        return
    application.stale_since_ns = application.stale_since_ns or partition.now_ns
    due_ns = application.stale_since_ns + grace_ns
    if grace_ns >= 0 and due_ns > partition.now_ns:
        partition.look_for_preemption_at(due_ns)


def stale_for_s(partition: Partition, application: Application) -> int:
    """Return for how long a gang has been below its minimum, as it is now."""
    note_staleness(partition, application)
    since_ns = application.stale_since_ns
    return (partition.now_ns - since_ns) // NANOS_PER_SECOND if since_ns else 0


def carry_out(partition: Partition, decisions: list[Decision]) -> None:
    """Release victims, and keep the nodes for those who were placed on their room."""
    net = net_of(decisions)
    for decision in net:
        if decision.evicts:
            _evict(partition, decision)
    for decision in net:
        if decision.node and not decision.evicts:
            _keep_node(partition, decision)


def net_of(decisions: list[Decision]) -> list[Decision]:
    """Return what several statements come to, once a task: its last place, and why it ends last."""
    net: dict[tuple[str, str], Decision] = {}
    for decision in decisions:
        key = (decision.job, decision.task)
        before = net.get(key)
        if before is not None and before.evicts and not decision.evicts:
            decision = replace(before, node=decision.node)  # noqa: PLW2901
        net[key] = decision
    return list(net.values())


def _evict(partition: Partition, decision: Decision) -> None:
    application = partition.applications[decision.job]
    if decision.task not in application.allocations or decision.task in application.released:
        return
    winner = partition.applications.get(decision.by)
    evict(partition, application, decision.task, winner, decision.reason)


def _keep_node(partition: Partition, decision: Decision) -> None:
    application = partition.applications[decision.job]
    node = partition.nodes.nodes[decision.node]
    group = application.group_of.get(decision.task)
    if group is not None:
        ask = group.asks[decision.task]
        partition.keep_freed_room(application, ask, node).retry()
    if application.is_gang and not application.gang_admitted:
        application.admit()
        if application.parked_at is not None or application.waiting_among is not None:
            application.unpark()
