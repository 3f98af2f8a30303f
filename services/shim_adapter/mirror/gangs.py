"""Placeholders of gangs: which are bound, and which are still to be created."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from services.shim_adapter.mirror.calls import CreatePod
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationPhase, ApplicationRecord, PodRecord
from services.shim_adapter.translation.placeholders import placeholder_pod
from shared.messages.commands import TaskGroupSpec
from shared.messages.interface import TerminationType
from shared.model.ids import derived_id

MAX_MADE_AT_ONCE = 5_000  # placeholders: what takes longer would hold up all that waits behind it


_NOT_LOST = (TerminationType.TIMEOUT, TerminationType.PLACEHOLDER_REPLACED)


class BoundPlaceholders:
    """The placeholders bound to existing nodes, by application and task group."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._bound: dict[tuple[str, str], dict[str, None]] = {}
        for pod in world.all_pods():
            self.note(pod)

    def take_up(self, application: ApplicationRecord) -> None:
        """Count the bound placeholders of an application again, and update its gang's phase.

        An instance may have died after the last bind, before it received the result: the gang is
        whole, and no longer reserves.
        """
        for group in application.task_groups:
            self._bound.pop((application.application_id, group.name), None)
        for pod in self._world.pods_of(application.application_id):
            self.note(pod)
        is_reserving = application.phase is ApplicationPhase.RESERVING
        if is_reserving and self.is_whole(application):
            application.phase = ApplicationPhase.RUNNING
            self._world.touch_application(application)

    def note(self, pod: PodRecord) -> None:
        """Count a pod, once, if it is a placeholder bound to an existing node.

        A placeholder whose bind is in progress does not count.
        """
        world = self._world
        if not pod.spec.placeholder or pod.has_ended or pod.uid in world.binding:
            return
        if pod.node in world.nodes:
            key = (pod.spec.application_id, pod.spec.task_group_name)
            self._bound.setdefault(key, {})[pod.uid] = None

    def forget(self, pod: PodRecord) -> None:
        """Stop counting a pod."""
        key = (pod.spec.application_id, pod.spec.task_group_name)
        bound = self._bound.get(key, {})
        if bound.pop(pod.uid, True) is None and not bound:
            del self._bound[key]

    def count(self, application: ApplicationRecord, group: str) -> int:
        """Return how many placeholders of a group are bound."""
        return len(self._bound.get((application.application_id, group), ()))

    def is_whole(self, application: ApplicationRecord) -> bool:
        """Whether every group has as many bound placeholders as it needs members."""
        return all(
            self.count(application, group.name) >= group.min_member
            for group in application.task_groups
        )

    def has_started(self, application: ApplicationRecord) -> bool:
        """Whether a gang need not reserve any more: it is whole, or real pods of it run."""
        pods = self._world.pods_of(application.application_id)
        runs = any(pod.node and not pod.has_ended and not pod.spec.placeholder for pod in pods)
        return runs or self.is_whole(application)


class PlaceholdersToMake:
    """The gangs whose placeholders are being created, MAX_MADE_AT_ONCE at a time, in turn.

    After a restart the missing placeholders of every reserving gang are created again: those in
    transit to the resource manager may never have arrived.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._left: dict[str, tuple[int, Iterator[CreatePod]]] = {}  # with the submission
        for application in world.applications.values():
            if application.phase is ApplicationPhase.RESERVING:
                self.add(application)

    def __bool__(self) -> bool:
        return bool(self._left)

    def add(self, application: ApplicationRecord) -> None:
        """Start to create a gang's placeholders."""
        left = missing_placeholders(self._world, application)
        self._left[application.application_id] = (application.submission, left)

    def next(self) -> list[CreatePod]:
        """Return the next placeholders to create; none for gangs that no longer reserve."""
        calls: list[CreatePod] = []
        while self._left and len(calls) < MAX_MADE_AT_ONCE:
            name = next(iter(self._left))
            submission, left = self._left.pop(name)
            application = self._world.applications.get(name)
            if application is None or application.submission != submission:
                continue
            if application.phase is ApplicationPhase.RESERVING:
                calls += islice(left, MAX_MADE_AT_ONCE - len(calls))
            if len(calls) == MAX_MADE_AT_ONCE:
                self._left[name] = (submission, left)  # behind those that wait
            self._world.touch_application(application)
        return calls


def missing_placeholders(world: World, application: ApplicationRecord) -> Iterator[CreatePod]:
    """Return the placeholders to create for every group, in the order of the groups.

    Existing ones are counted now, including those being deleted, because a lost placeholder is
    replaced separately.
    """
    existing: dict[str, int] = {}
    for pod in world.pods_of(application.application_id):
        is_made_again = not pod.deletion_ns or pod.release not in _NOT_LOST
        if pod.spec.placeholder and not pod.has_ended and is_made_again:
            made = pod.spec.task_group_name
            existing[made] = existing.get(made, 0) + 1
    return (
        _placeholder(world, application, group)
        for group in application.task_groups
        for _ in range(existing.get(group.name, 0), group.min_member)
    )


def in_place_of(world: World, application: ApplicationRecord, lost: PodRecord) -> list[CreatePod]:
    """Return the placeholder to create for one that was lost while its gang reserves.

    None if the core released it for its timeout or for a real pod, or if the settings say, as
    YuniKorn does, that lost placeholders are not replaced: the gang then waits for its timeout.
    """
    groups = {group.name: group for group in application.task_groups}
    group = groups.get(lost.spec.task_group_name)
    is_over = application.phase is not ApplicationPhase.RESERVING
    if group is None or is_over or lost.release in _NOT_LOST or not world.remakes_placeholders:
        return []
    members = sum(group.min_member for group in application.task_groups)
    losses = application.placeholders_lost // members
    application.placeholders_lost += 1
    world.touch_application(application)
    return [replace(_placeholder(world, application, group), losses=losses)]


def _placeholder(world: World, application: ApplicationRecord, group: TaskGroupSpec) -> CreatePod:
    application.placeholders_made += 1
    number = application.placeholders_made
    cause = f"{application.application_id}/{application.submission}/{world.epoch}/{number}"
    return CreatePod(derived_id(cause, 0), placeholder_pod(application, group, cause))
