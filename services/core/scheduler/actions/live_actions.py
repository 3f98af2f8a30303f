"""The actions consolidation, reclaim, preempt and stale gang eviction, in their configured order.

They run on the partition with a statement, whose decisions are carried out at once: victims are
released in one message, and claims reserve the capacity for the asks they make way for. A queue's
guarantee is its quota, its max its limit, an application a job.

shrink evicts pods of gangs above their minimum; consolidation moves pods to other nodes; reclaim
evicts from queues over their share; preempt evicts lower priorities in the same queue; stale gang
eviction ends gangs below their minimum. The cycle places what fits; under kai ``allocate`` places
jobs on capacity being released, so that no more is evicted for them.

Under the policy ``yunikorn`` shrink, consolidation and stale gang eviction may run too. What
protects from preemption there protects from these: a queue that disables it, a fence around the
ask. Accelerators and other node resources count as vcore and memory do; ``pods`` only on the nodes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from services.core.scheduler.actions.attempt import Attempt
from services.core.scheduler.actions.jobs_in_order import (
    JobOrder,
    WaitingJobs,
    is_ready,
    tasks_to_allocate,
)
from services.core.scheduler.actions.placing import place_job
from services.core.scheduler.actions.preemption_checks import CHECK_DELAY_NS
from services.core.scheduler.actions.solver import Search, could_ever_fit, solve
from services.core.scheduler.actions.victims import carry_out
from services.core.scheduler.constraints.capacity import may_take
from services.core.scheduler.constraints.fair_share import set_fair_shares
from services.core.scheduler.model.lost_work import (
    lost_of,
    lost_with,
    served,
    service_level,
)
from services.core.scheduler.model.queue_settings import DISABLED, FENCE
from services.core.scheduler.model.rows import Application, AskGroup, Queue
from services.core.scheduler.model.search_pass import MAX_WORK, SearchPass
from services.core.scheduler.model.settings import (
    ALLOCATE,
    CONSOLIDATION,
    KAI,
    PREEMPT,
    RECLAIM,
    SHRINK,
    STALE,
    YUNIKORN,
)
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.model.usage import REPORT_NS
from services.core.scheduler.ordering import queueing
from services.core.scheduler.ordering.quotas import quota_of
from services.core.scheduler.statement.allocation_log import PRECONDITIONS, note
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.task_trees import Group
from services.core.scheduler.statement.trial import (
    UNLIMITED,
    Adapter,
    Job,
    Share,
    Task,
    Trial,
    holds_room,
    is_evictable,
)
from services.core.scheduler.statement.usage_moves import used_of
from shared.messages.gang_tree import GangTree
from shared.model.numbers import INT64_MAX
from shared.model.reasons import Reason
from shared.model.units import NANOS_PER_SECOND


class UnknownActionError(ValueError):
    """An action does not exist; the message names those that do."""


class SearchPolicy(Protocol):
    """A policy's searches; each returns None if the job may not search for victims."""

    def consolidation(self, trial: Trial, job: Job) -> Search | None:
        """Return a search in which other pods only move."""

    def shrinking(self, trial: Trial, job: Job) -> Search | None:
        """Return a search among pods of gangs above their minimum."""

    def reclaim(self, trial: Trial, job: Job) -> Search | None:
        """Return a search among other queues."""

    def preemption(self, trial: Trial, job: Job) -> Search | None:
        """Return a search in the job's own queue."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action: its decision on a trial, and when it runs.

    ``is_search``: it searches victims for waiting asks, and is not repeated before something has
    changed. Other actions run in every pass, and within a second of a journal entry for which
    ``after`` is true.
    """

    decide: Callable[[Trial, SearchPolicy], None]
    is_search: bool = False
    after: Callable[[object], bool] | None = None


def run(
    partition: Partition, actions: tuple[str, ...], policy: SearchPolicy, so_far: SearchPass
) -> None:
    """Run the remaining actions of a pass and carry out their decisions.

    Searches that found nothing are skipped until something has changed. If the pass is cut
    (``is_cut``), it has more to do.
    """
    known, wanted = partition.failed_searches, _left_of(partition, actions, so_far)
    so_far.is_cut = False
    is_known_to_fail = False
    if not so_far.has_begun:
        so_far.as_of = known.changes
        searches = [STEPS[name].is_search for _, name in wanted]
        are_first = searches == sorted(searches, reverse=True)  # no other action before a search
        is_known_to_fail = are_first and known.holds(actions, partition.now_ns)
    if is_known_to_fail:
        known.skipped += 1
        wanted = [each for each in wanted if not STEPS[each[1]].is_search]
    if not wanted or not partition.nodes.nodes:
        return
    trial = Trial(partition, PartitionAdapter(partition))
    trial.most, trial.looked_at = MAX_WORK, so_far.looked_at
    done = decide(trial, [name for _, name in wanted], policy)
    decisions = trial.statement.commit()
    carry_out(partition, decisions)
    so_far.is_cut, so_far.looked_at = done < len(wanted), trial.looked_at
    so_far.has_found |= bool(decisions)
    if so_far.is_cut:
        so_far.at = wanted[done][0]
        return
    _note_delayed(partition)
    ends_ns = _window_ends(partition)
    has_failed = not (so_far.has_found or is_known_to_fail) and so_far.as_of == known.changes
    if has_failed and partition.hooks is None:
        known.remember(actions, min(ends_ns, _changes_at(partition)))
    if ends_ns < INT64_MAX:
        partition.check_preemption_at(ends_ns)


def _left_of(
    partition: Partition, actions: tuple[str, ...], so_far: SearchPass
) -> list[tuple[int, str]]:
    """Return the remaining actions of a pass, each with its index."""
    is_kai = partition.settings.policy == KAI and bool(partition.releasing)
    left = list(enumerate(actions))[so_far.at :]
    in_vain = {ALLOCATE: not is_kai, SHRINK: SHRINK in actions and not may_shrink(partition)}
    return [(at, name) for at, name in left if not in_vain.get(name, False)]


def may_shrink(partition: Partition) -> bool:
    """Whether a gang has pods that make way, and an application waits for more than growth."""
    asking = partition.root.asking
    return bool(partition.above_minimum) and any(not each.has_its_minimum for each in asking)


def check_for_followers(partition: Partition) -> None:
    """Schedule the actions that follow an entry just recorded in the journal."""
    for name in partition.settings.actions:
        after = STEPS[name].after
        if after is not None and any(map(after, partition.journal)):
            partition.check_preemption_at(partition.now_ns + CHECK_DELAY_NS)


def _changes_at(partition: Partition) -> int:
    """Return when searches may find victims by time alone, e.g. a barred pair is free again."""
    now_ns = partition.now_ns
    moments = list(partition.evictions.held_until_ns.values())
    moments += [moment[0] for moment in partition.starvation_times[:1]]
    return min((moment for moment in moments if moment > now_ns), default=INT64_MAX)


def _note_delayed(partition: Partition) -> None:
    """Note in the logs of asks that their preemption delay has not passed."""
    for application in partition.root.asking:
        if delay_end_ns(application) > partition.now_ns:
            heads = [group.head() for group in application.groups.values()]
            for ask in filter(None, heads):
                note(partition, application, ask, PRECONDITIONS)


def _window_ends(partition: Partition) -> int:
    """Return when the next minimum runtime or preemption delay ends.

    If usage over time or service levels count, one minute from now at most.
    """
    ends = list(map(delay_end_ns, partition.root.asking))
    if partition.root.asking and (partition.usage is not None or _has_levels(partition)):
        ends.append(partition.now_ns + REPORT_NS)  # shares change with time
    for queue in partition.queues.values():
        for window_ns in _windows(queue) if queue.is_leaf else ():
            ends += [each.began_ns + window_ns for each in queue.applications.values()]
    return min((end_ns for end_ns in ends if end_ns > partition.now_ns), default=INT64_MAX)


def _has_levels(partition: Partition) -> bool:
    """Whether a leaf orders applications by service levels."""
    return any(queue.settings.service_levels_ns for queue in partition.queues.values())


def _windows(queue: Queue) -> dict[int, None]:
    """Return the minimum runtimes that apply in a queue."""
    stated = (
        window_ns
        for level in queue.lineage()
        for window_ns in (
            level.settings.reclaim_min_runtime_ns,
            level.settings.preempt_min_runtime_ns,
        )
    )
    return dict.fromkeys(filter(None, stated))


def decide(trial: Trial, actions: Sequence[str], policy: SearchPolicy) -> int:
    """Run actions in order on a trial's statement; return how many are done.

    Fewer than all if the trial reached its limit. Raises UnknownActionError.
    """
    for name in actions:
        if name not in STEPS:
            raise UnknownActionError(f"no action {name!r}; there are {', '.join(STEPS)}")
    set_fair_shares(trial)
    for at, name in enumerate(actions):
        STEPS[name].decide(trial, policy)
        if trial.is_cut:
            return at
        trial.looked_at = {}
    return len(actions)


def _allocate(trial: Trial, _: SearchPolicy) -> None:
    """Place jobs on capacity being released: each job's minimum, then task by task."""
    left = (job for job in trial.asking if job.name not in trial.looked_at)
    order = JobOrder(trial, filter(is_ready, left))
    while (job := trial.next_of(order.pop)) is not None:
        tasks = tasks_to_allocate(job)
        if not may_take(trial, job, tasks):
            continue
        attempt = Attempt(trial, job.name)
        if not place_job(attempt, job, tasks):
            attempt.discard()
        elif is_ready(job):
            trial.looked_at.pop(job.name)
            order.push(job)


def _solve_each(trial: Trial, search_of: Callable[[Trial, Job], Search | None]) -> None:
    """Let jobs search for victims in order; a job that succeeds may search for more."""
    order, others = JobOrder(trial, ()), WaitingJobs(trial)
    order.enter_all(others, trial.looked_at)
    while (job := trial.next_of(order.pop)) is not None:
        search = search_of(trial, job) if could_ever_fit(trial, job) else None
        if search is not None and solve(trial, job, search, others) and is_ready(job):
            trial.looked_at.pop(job.name)
            order.push(job)


def _consolidate(trial: Trial, policy: SearchPolicy) -> None:
    """Move preemptible tasks together so that a waiting job fits; none is lost."""
    _solve_each(trial, policy.consolidation)


def _shrink(trial: Trial, policy: SearchPolicy) -> None:
    """Evict pods of gangs above their minimum for others that wait."""
    _solve_each(trial, policy.shrinking)


def _reclaim(trial: Trial, policy: SearchPolicy) -> None:
    """Evict from queues over their fair share for queues under theirs."""
    _solve_each(trial, policy.reclaim)


def _preempt(trial: Trial, policy: SearchPolicy) -> None:
    """Evict lower priorities of the same queue."""
    _solve_each(trial, policy.preemption)


def _evict_stale_gangs(trial: Trial, _: SearchPolicy) -> None:
    """Evict gangs that have been below their minimum for longer than their grace.

    A part that the gang does not need is evicted alone. A gang that was evicted is not evicted
    again until it was whole.
    """
    partition = trial.partition
    for application, part, stale_for_s in trial.adapter.stale():
        job = trial.job_of(application)
        group = job.group.find(part) if part else job.group
        if group is None or not _is_stale(trial, job, group, stale_for_s):
            continue
        of = f"part {part} of " if part else "its gang, "
        reason = (
            f"evicted with {of}application {job.name} in {job.queue.name}, which has been "
            f"below its minimum for {stale_for_s} s"
        )
        attempt = Attempt(trial)
        evictable = group.all_tasks(is_evictable)
        if not evictable or not partition.evictions.may_end(application.id, STALE):
            continue
        for task in evictable:
            attempt.evict(task, reason, STALE)


def _is_stale(trial: Trial, job: Job, group: Group[Task], stale_for_s: int) -> bool:
    """Whether a gang has been below its minimum for too long; pods being released still count."""
    if job.application.succeeded or not job.placed or group.is_satisfied(holds_room):
        return False
    grace_s = trial.adapter.staleness_grace_s(job.application)
    return grace_s >= 0 and stale_for_s >= grace_s


STEPS: dict[str, Step] = {
    ALLOCATE: Step(_allocate),
    CONSOLIDATION: Step(_consolidate, is_search=True),
    RECLAIM: Step(_reclaim, is_search=True),
    PREEMPT: Step(_preempt, is_search=True),
    STALE: Step(_evict_stale_gangs),
    SHRINK: Step(_shrink, is_search=True),
}


class PartitionAdapter(Adapter):
    """The adapter of the live partition."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._is_yunikorn = partition.settings.policy == YUNIKORN
        self._known = partition.nodes.total.keys()
        self.spares_work = partition.settings.spares_work

    def share(self, queue: Queue, names: tuple[str, ...], at: int, above: Share | None) -> Share:
        """Return a queue's share: quota and max as limit; the root is limited by the nodes."""
        owed = quota_of(queue)
        most = (queue.max_resource or {}) if above is not None else {}
        quota = [owed.get(name, UNLIMITED) for name in names]
        limit = [most.get(name, UNLIMITED) for name in names]
        settings, common = queue.settings, queue.settings.over_quota_weight
        weight = [settings.over_quota_weights.get(name, common) for name in names]
        least: dict[str, int] = {}
        if settings.reclaim_min_runtime_ns is not None:
            least[RECLAIM] = settings.reclaim_min_runtime_ns // NANOS_PER_SECOND
        if settings.preempt_min_runtime_ns is not None:
            least[PREEMPT] = settings.preempt_min_runtime_ns // NANOS_PER_SECOND
        priority = settings.division_priority
        return Share(
            queue, names, at, above, priority, quota, limit, weight,
            min_runtime_s=least, used=used_of(self._partition, queue, names),
        )  # fmt: skip

    def simple_minimum(self, application: Application) -> int | None:
        """Return the minimum, None for a gang of several task groups."""
        if not application.request.placeholder_ask and application.tree is None:
            return 1
        return self.minimum(application) if self.is_flat(application) else None

    def minimum(self, application: Application) -> int:
        """Return how many must start together: all members of a gang, unless it gave up."""
        return sum(_minimum_of(application).values()) or 1

    def is_flat(self, application: Application) -> bool:
        """Whether an application is not a gang of several task groups."""
        if application.tree is not None:
            is_plain = application.tree.only is not None and application.tree.goes_by_parts()
            return bool(application.succeeded) or is_plain
        if application.layout is not None:
            return False
        return len(application.task_groups) <= 1 or len(_minimum_of(application)) <= 1

    def tree(self, job: Job) -> Group[Task] | None:
        """Return a set for each task group of a gang; tasks outside of these are optional."""
        application = job.application
        if application.tree is not None and not application.succeeded:
            return _group_of(application.tree, job)
        if job.is_flat:
            return None
        wanted = _minimum_of(job.application)
        sets = {name: Group[Task](name, count) for name, count in wanted.items()}
        others = Group[Task](job.name)
        for task in job.tasks:
            sets.get(task.task_group, others).tasks.append(task)
        members = [*sets.values(), *([others] if others.tasks else [])]
        if application.layout is not None:
            root = _arranged(application.layout, sets)
            members = [root, *sets.values(), *([others] if others.tasks else [])]
        return Group(job.name, members=members)

    def is_preemptible(self, application: Application) -> bool:
        """Whether an application may be evicted: no budget blocks it."""
        if application.is_non_preemptible:
            return False
        barred = self._partition.victims.is_barred
        return super().is_preemptible(application) and not (
            self._partition.victims.disruptions and any(map(barred, application.allocations))
        )

    def lost_work(self, application: Application, *, is_one: bool) -> tuple[int, ...]:
        """Return the lost device-seconds, vcore-seconds, and the number of pods."""
        if not self._partition.settings.spares_work:
            return ()
        lost = list(lost_of(application, self._partition.now_ns))
        lost = lost[-1:] if is_one else lost
        return (sum(each[0] for each in lost), sum(each[1] for each in lost), len(lost))

    def lost_with(self, task: Task) -> tuple[int, int]:
        """Return the device- and vcore-seconds lost with a task, in thousandths."""
        pod, now_ns = task.pod, self._partition.now_ns
        if isinstance(pod, Ask):
            return (0, 0)
        return lost_with(task.job.application, pod, now_ns)

    def served(self, application: Application) -> tuple[int, int]:
        """Return the device- and vcore-seconds of its service, in thousandths."""
        devices_ns, vcore_ns = served(application, self._partition.now_ns)
        return devices_ns // NANOS_PER_SECOND, vcore_ns // NANOS_PER_SECOND

    def service_level(self, application: Application) -> int:
        """Return its service level, 0 if its leaf has none."""
        return service_level(application, self._partition.now_ns)

    def runtime_s(self, application: Application) -> int:
        """Return for how many seconds it has had allocations without a break."""
        since_ns = application.began_ns if application.allocations else self._partition.now_ns
        return (self._partition.now_ns - since_ns) // NANOS_PER_SECOND

    def waits_s(self, application: Application) -> int:
        """Return for how many seconds it may not preempt yet, rounded up; 0 or less: it may."""
        return -((self._partition.now_ns - delay_end_ns(application)) // NANOS_PER_SECOND)

    def stale(self) -> Iterator[tuple[Application, str, int]]:
        """Yield each gang, or part of one, below its minimum, and for how many seconds.

        The part is "" for the gang itself.
        """
        for application in list(self._partition.below_minimum.values()):
            for part, since_ns in application.stale_since_ns.items():
                yield application, part, (self._partition.now_ns - since_ns) // NANOS_PER_SECOND

    def staleness_grace_s(self, application: Application) -> int:
        """Return for how many seconds a gang may be stale; negative: unlimited."""
        grace_ns = self._partition.grace_of(application)
        return -1 if grace_ns < 0 else grace_ns // NANOS_PER_SECOND

    def may_start(self, application: Application, group: AskGroup) -> bool:
        """Whether asks wait for capacity, and not for their gang, a user's limit or one node."""
        ask = group.head()
        return (
            ask is not None
            and _waits_for_room(application)
            and not application.is_behind_starved_gang
            and not group.bucket.is_blocked_by_user
            and queueing.hold(application, group, by_turn=False) is None
            and not ask.shape.constraints.required_node
            and all(name in self._known for name in ask.shape.wanted)
        )

    def may_take_from(self, victim: Application, application: Application) -> bool:
        """Whether YuniKorn's fences, if its policy applies, allow a move."""
        return not self._is_yunikorn or _may_move(victim.queue, application.queue)

    def asking(self, asks: Iterable[Ask]) -> list[Ask]:
        """Return those of some asks that may preempt and have not done so."""
        found = [ask for ask in asks if not ask.has_preempted]
        return (
            [ask for ask in found if ask.request.allow_preempt_other]
            if self._is_yunikorn
            else found
        )


def _group_of(tree: GangTree, job: Job) -> Group[Task]:
    """Return a gang's tree with its tasks; tasks outside of its task groups are optional."""
    by_group: dict[str, list[Task]] = {}
    for task in job.tasks:
        by_group.setdefault(task.task_group, []).append(task)

    def made(part: GangTree) -> Group[Task]:
        tasks = by_group.pop(part.name, []) if not part.is_group else []
        return Group(
            part.name,
            part.minimum,
            part.needed if part.is_group else None,
            members=[made(each) for each in part.parts],
            tasks=tasks,
            topology=part.constraint,
            goes_whole=part.goes_whole,
        )

    root = made(tree)
    others = [task for tasks in by_group.values() for task in tasks]
    return replace(root, members=[*root.members, Group(job.name, tasks=others)]) if others else root


def _arranged(part: GangTree, sets: dict[str, Group[Task]]) -> Group[Task]:
    """Return a gang's layout with its sets of tasks, which are removed from ``sets``."""
    if not part.is_group:
        return replace(sets.pop(part.name, Group(part.name)), topology=part.constraint)
    members = [_arranged(each, sets) for each in part.parts]
    return Group(part.name, members=members, topology=part.constraint)


def delay_end_ns(application: Application) -> int:
    """Return when a gang's preemption delay ends: it starts again with every eviction."""
    delay_ns = application.request.gang.preemption_delay_ns
    return max(application.submission_time_ns, application.evicted_ns) + delay_ns if delay_ns else 0


def _minimum_of(application: Application) -> dict[str, int]:
    """Return the minimum of each task group, {} if it is no gang any more.

    A gang with a succeeded pod is finishing: its minimum no longer applies.
    """
    if application.is_gang_over or application.succeeded:
        return {}
    if application.tree is not None:
        return application.tree.minima()
    if not application.is_gang:
        return {}
    groups = application.task_groups.items()
    return {name: counts.members for name, counts in groups if counts.members}


def _may_move(leaf: Queue, asking: Queue) -> bool:
    """Whether a leaf's pods may be moved for another queue: no fence separates them."""
    if leaf.settings.preemption_policy == DISABLED:
        return False
    fence = next((q for q in asking.lineage() if q.settings.preemption_policy == FENCE), None)
    return fence is None or fence in leaf.lineage()


def _waits_for_room(application: Application) -> bool:
    """Whether an application lacks capacity, and not permission to run or a user's limit."""
    refusal = application.refusal
    if refusal is None:
        return application.may_schedule
    by_user = any(tracker.wait_list is application.waits_at for tracker in application.trackers)
    is_for_room = refusal.reason in (Reason.GANG_HEADROOM, Reason.GANG_PLACES)
    return is_for_room and not by_user
