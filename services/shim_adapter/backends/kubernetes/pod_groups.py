"""Pods of PodGroups: they wait until their gang is complete, and are then released as one.

Rule 1: a pod that names a PodGroup waits until the PodGroup exists, and as many of its pods as it
        requires: waiting, on nodes, or succeeded. Gated and failed pods do not count.
Rule 2: the pods released together are a gang of a new application, with a task group for every
        shape (``gang_of_group.py``). While one of them exists, new pods join it; those of a group
        of Kubernetes' own only while as many exist as it requires now.
Rule 3: all or nothing. A gang that gets no places in time, or no placeholders, waits again, and is
        tried again after a growing pause; it never continues pod by pod.
Rule 4: a change or deletion of a PodGroup affects waiting pods only. But a gang without
        placeholders follows the current minimums of its PodGroup.
Rule 5: nothing is released before everything was listed, so that groups are known completely.
Rule 6: pods that are too different for a gang are checked again after RETRY_SECONDS, or when their
        PodGroup changes, and not for every observed pod.
No I/O. Except for the release, the cost per pod does not depend on the size of its group.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count

from services.shim_adapter.backends.kubernetes.claim_objects import DeviceClaims, GroupClaims
from services.shim_adapter.backends.kubernetes.gang_of_group import (
    application_of,
    names_by_shape,
    shape_of,
    shared_in,
    task_groups_text,
)
from services.shim_adapter.backends.kubernetes.group_disruptions import Disruptions
from services.shim_adapter.backends.kubernetes.group_objects import (
    GroupObjects,
    object_of,
    with_group_defaults,
)
from services.shim_adapter.backends.kubernetes.group_status import (
    INVALID,
    UNREADABLE,
    UNSCHEDULABLE,
    GroupStatuses,
    Standing,
)
from services.shim_adapter.backends.kubernetes.group_trees import Object, part_named, pods_of
from services.shim_adapter.backends.kubernetes.objects import PodView
from services.shim_adapter.backends.kubernetes.observed import PodGroupSeen
from services.shim_adapter.backends.kubernetes.topologies import HOST_NAME, Topologies
from services.shim_adapter.mirror.calls import GangNews, News, PodGone
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import PodPhase, PodRecord
from services.shim_adapter.translation.pods import MAX_APPLICATION_ID, PriorityClass
from services.shim_adapter.translation.task_groups import (
    POLICY_PARAMETERS,
    TASK_GROUP_NAME,
    TASK_GROUPS,
    TaskGroupsError,
    task_groups_of,
)
from services.shim_adapter.translation.workloads.pod_groups import (
    COMPOSITE,
    CORE,
    KUEUE,
    POD_GROUP,
    VOLCANO,
    GroupRef,
)
from services.shim_adapter.translation.workloads.replicas import Gang
from services.shim_adapter.translation.workloads.subgroup_policies import (
    subgroup_of,
    with_subgroups,
)
from shared.messages.commands import PodSpec
from shared.messages.interface import NO_TOPOLOGY
from shared.model.reasons import Reason
from shared.model.units import seconds

TELL_SECONDS = 5  # a gang is made pod by pod: only who waits longer is told so
RETRY_SECONDS = 10  # 10, 20, 40 ...: a gang that was not to be had is tried again ever later
MAX_RETRY_SECONDS = 300  # seconds between attempts to create a PodGroup's gang; repeated for ever
MIN_TIMEOUT_SECONDS = 30  # of a PodGroup's own; a shorter one makes and deletes placeholders only
_GENERATION = 5  # characters
Ties = Callable[[str, Iterable[DeviceClaims]], dict[str, tuple[str, str]]]
_STATED_DIFFERENTLY = "its pods state different totals, or wish different levels"


@dataclass(slots=True)
class _Group:
    """A group's pods. ``members`` are all that count, by uid, with the name of their subgroup."""

    members: dict[str, str] = field(default_factory=dict)
    by_subgroup: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, PodView] = field(default_factory=dict)
    placed: dict[str, None] = field(default_factory=dict)  # on nodes, or done with success
    running: dict[str, None] = field(default_factory=dict)
    done: dict[str, None] = field(default_factory=dict)
    let_go: dict[str, PodView | None] = field(default_factory=dict)  # None: it has its node
    application: str = ""
    text: str = ""  # the task groups of the gang that was let go last
    names: dict[str, str] = field(default_factory=dict)  # of these, by shape
    failures: int = 0
    retry_ns: int = 0
    wrong: str = ""  # why its pods make no gang, until that is tried again
    refused: str = ""  # why its placeholders were last, where it was not for want of places
    is_reminded: bool = False  # who waits is told why in a moment
    gang: Gang | None = None  # what its group said when it was let go
    shared: dict[str, str] = field(default_factory=dict)  # claims, with the name of their tie

    def shape_of(self, ref: GroupRef, view: PodView, spec: PodSpec) -> str:
        """Return the key of pods equal to one, which may share a claim with others."""
        named = (self.shared.get(each.claim, "") for each in view.device_claims.claims)
        return shape_of(spec, view.where, view.subgroup, ref, next(filter(None, named), ""))

    def by_part(self, pods: Iterable[str]) -> dict[str, int]:
        """Return the number of the given pods in each part."""
        found: dict[str, int] = {}
        for uid in pods:
            part = self.members.get(uid, "")
            found[part] = found.get(part, 0) + 1
        return found

    def lacks(self, gang: Gang) -> bool:
        """Whether pods are missing of those that must start together."""
        tree = gang.tree
        if tree is not None:
            counts: dict[str, int] = {}
            for subgroup, count in self.by_subgroup.items():
                part = gang.part_of(subgroup)
                counts[part] = counts.get(part, 0) + count
            return tree.lacking({}, counts) is None
        if gang.subgroups:
            there = self.by_subgroup
            return any(there.get(name, 0) < least for name, least in gang.subgroups.items())
        return len(self.members) < gang.minimum

    def shapes(self, ref: GroupRef, gang: Gang, ties: Mapping[str, tuple[str, str]]) -> str:
        """Return the task groups of the pods that start together; "" for a single pod or none.

        ``ties`` are those of the claims that they share.
        """
        self.shared = {claim: name for claim, (name, _) in ties.items()}
        if gang.topology.wrong:
            raise TaskGroupsError(gang.topology.wrong)
        shapes: dict[str, int] = {}
        names: dict[str, str] = {}
        for view in () if gang.tree is not None else self._first(gang):
            assert view.spec is not None
            shape = self.shape_of(ref, view, view.spec)
            shapes[shape] = shapes.get(shape, 0) + 1
            names[shape] = view.subgroup
        if sum(shapes.values()) <= (gang.topology == NO_TOPOLOGY):
            return ""
        text = task_groups_text(shapes, names, gang.topology, dict(ties.values()))
        task_groups_of(text)
        return text

    def _first(self, gang: Gang) -> Iterator[PodView]:
        """Yield the waiting pods that start together, by rank; succeeded ones count as started."""
        order = sorted(self.waiting.values(), key=_rank)
        if not gang.subgroups:
            yield from order[: max(0, gang.minimum - len(self.members) + len(self.waiting))]
            return
        left = dict(gang.subgroups)
        for uid, subgroup in self.members.items():
            if uid not in self.waiting and subgroup in left:
                left[subgroup] -= 1
        for view in order:
            if left.get(view.subgroup, 0) > 0:
                left[view.subgroup] -= 1
                yield view


class PodGroups:
    """The groups. ``admit`` adds a released pod with its final spec, and returns the reports.

    ``hold_back`` reports why a pod waits.
    """

    def __init__(
        self,
        world: World,
        classes: Mapping[str, PriorityClass],
        hold_back: Callable[[PodView, Reason, str, int], None],
        admit: Callable[[PodView, int], list[News]],
        statuses: GroupStatuses,
        *,
        topologies: Topologies | None = None,
        tie_of: Callable[[str, GroupClaims], str] = lambda _namespace, _claims: HOST_NAME,
        shared_ties: Ties = lambda _namespace, _pods: {},
    ) -> None:
        self._world = world
        self._classes = classes
        self._hold_back = hold_back
        self._admit = admit
        self._statuses = statuses
        self._shared_ties = shared_ties
        self.objects = GroupObjects(Topologies() if topologies is None else topologies, tie_of)
        statuses.follow(self._standing)
        self._is_ready = False
        self._now_ns = 0
        self._groups: dict[GroupRef, _Group] = {}
        self._of_object: dict[Object, dict[GroupRef, None]] = {}
        self._of_pod: dict[str, GroupRef] = {}
        self._claimed: dict[str, GroupRef] = {}  # applications of gangs
        self._due: list[tuple[int, int, GroupRef]] = []  # a heap
        self._numbers = count()
        self._disruptions = Disruptions()

    def is_to_be_formed(self, ref: GroupRef) -> bool:
        """Whether pods that share a claim may wait for each other in a group, tied by it."""
        group, gang = self._groups.get(ref), self._gang(ref)
        is_there = group is not None and bool(group.let_go or group.text)
        return not (is_there or isinstance(gang, str)) and _may_be_tied(gang)

    # --- what is seen ---------------------------------------------------------------------------

    def see(self, seen: PodGroupSeen, now_ns: int) -> list[News]:
        """Apply a change of a PodGroup."""
        self._statuses.see(seen.name, seen.uid, None if seen.gangs is None else seen.status)
        self.objects.note_claims(seen)
        if self.objects.by_name.get(seen.name) == seen.gangs:
            return []  # its status: controllers write that all the time
        before = self.objects.homes(seen.name)
        if seen.gangs is None:
            del self.objects.by_name[seen.name]
        else:
            self.objects.by_name[seen.name] = seen.gangs
        if seen.name[0] in (CORE, COMPOSITE):
            self.objects.trees.see(seen.name, seen.gangs)
            self._statuses.changed(seen.name, self._now_ns)
        homes = before | self.objects.homes(seen.name)
        news = self._sort_again(GroupRef(*seen.name), now_ns)
        for podgroup in homes:
            news += self._move(podgroup, before.get(podgroup), now_ns)
        of_object = self._of_object.get(seen.name, ())
        for ref in dict.fromkeys((*of_object, *homes.values())):
            if ref in self._groups:
                news += self._judge_again(ref, now_ns)
        return news

    def _move(self, podgroup: Object, before: GroupRef | None, now_ns: int) -> list[News]:
        """Move the waiting pods of a PodGroup to the gang that it belongs to now."""
        own = GroupRef(*podgroup)
        ref = self.objects.trees.home(own)
        group = self._groups.get(before or own)
        if group is None or ref == (before or own):
            return []
        part = podgroup[2] if (before or own) != own else ""
        news = self._take_back(group, part, now_ns)
        for view in [view for view in group.waiting.values() if view.subgroup == part]:
            self.gone(view.uid)
            news += self.on_pod(replace(view, group=own, subgroup=""), now_ns)
        return news

    def _sort_again(self, ref: GroupRef, now_ns: int) -> list[News]:
        """Assign waiting pods to the current subgroups of a Volcano PodGroup."""
        group = self._groups.get(ref) if ref.kind == VOLCANO else None
        if group is None:
            return []
        news = self._take_back(group, "", now_ns)
        for view in list(group.waiting.values()):
            if self._homed(view).subgroup != view.subgroup:
                self.gone(view.uid)
                news += self.on_pod(view, now_ns)
        return news

    def _take_back(self, group: _Group, part: str, now_ns: int) -> list[News]:
        """Let a released gang without a node wait again."""
        if group.placed or not group.let_go:
            return []
        uids = [uid for uid, view in group.let_go.items() if view and part in ("", view.subgroup)]
        group.retry_ns = now_ns + 1  # no pause: it was not refused
        news = self._put_back(group, uids, now_ns)
        group.retry_ns = 0
        return news

    def _judge_again(self, ref: GroupRef, now_ns: int) -> list[News]:
        """Check waiting pods against their changed group; for core groups all that have no node."""
        group, gang = self._groups[ref], self._gang(ref)
        news: list[News] = []
        is_judged = isinstance(gang, Gang) and (
            ref.kind in (CORE, COMPOSITE) or gang.names_a_tree
        )  # fmt: skip
        if is_judged and group.gang not in (None, gang):
            news += self._take_back(group, "", now_ns)
        if group.wrong or not group.refused:
            group.retry_ns = 0
        news += self._minimums_changed(ref)
        news += self._consider(ref, now_ns)
        self._remind(ref, now_ns)
        self._changed(ref)
        return news

    def _minimums_changed(self, ref: GroupRef) -> list[News]:
        """Return a report of new minimums for a released gang without placeholders."""
        group, gang = self._groups[ref], self._gang(ref)
        is_theirs = bool(group.application) and not group.text
        if isinstance(gang, str) or gang.tree is None or not is_theirs:
            return []
        return [GangNews(group.application, gang.terms)]

    def trees_changed(self, now_ns: int) -> list[News]:
        """Check again the gangs that name a topology of the cluster, because it has changed."""
        news: list[News] = []
        for ref in list(self._groups):
            found = self.objects.by_name.get(object_of(ref))
            gang = None if found is None or isinstance(found, str) else found.get(ref.part)
            if gang is not None and gang.names_a_tree:
                news += self._judge_again(ref, now_ns)
        return news

    def _changed(self, ref: GroupRef, part: str = "") -> None:
        """Record that the progress of a gang, and of groups that contain it, may have changed."""
        name = object_of(ref)
        self._statuses.changed(name, self._now_ns)
        if ref.kind == COMPOSITE:
            parts = (
                [(CORE, ref.namespace, part)] if part else self.objects.trees.pods_groups_in(name)
            )
            for each in parts:
                self._statuses.changed(each, self._now_ns)
                for above in self.objects.trees.above(each):
                    self._statuses.changed(above, self._now_ns)

    def foreign_pod(self, uid: str, ref: GroupRef, now_ns: int) -> list[News]:
        """Add a pod of another scheduler that names a group, which then may not start."""
        if not self.objects.add_foreign_pod(uid, ref):
            return []
        home = self.objects.trees.home(ref)
        group = self._groups.get(home)
        if group is None:
            return []
        news = self._take_back(group, "", now_ns)
        self._remind(home, now_ns)
        return news

    def _foreign_pod_gone(self, uid: str) -> None:
        ref = self.objects.drop_foreign_pod(uid)
        home = None if ref is None else self.objects.trees.home(ref)
        if home in self._groups:
            self._remind(home, self._now_ns)

    def on_pod(self, view: PodView, now_ns: int) -> list[News]:
        """Add or update a pod that names a group and is not released yet."""
        view = self._homed(view)
        ref = view.group
        assert ref is not None
        if ref.kind == KUEUE:
            self._note_stated(ref, view)
        if view.gates or (view.is_deleting and not view.node):
            self.gone(view.uid)
            return []
        group = self._member(ref, view)
        self._changed(ref, view.subgroup)
        if not (self._is_ready and view.node):
            group.waiting[view.uid] = view
            news = self._consider(ref, now_ns)
            if view.uid in group.waiting and not group.is_reminded:
                group.is_reminded = True
                self._remind(ref, now_ns + seconds(TELL_SECONDS))
            return news
        return self._on_a_node(ref, group, view, now_ns)

    def _note_stated(self, ref: GroupRef, view: PodView) -> None:
        """Record the group that plain pods of Kueue state, for which there is no object."""
        name, said = object_of(ref), view.stated
        stated: Mapping[str, Gang] | str = said if isinstance(said, str) else {"": said}
        known = self.objects.by_name.setdefault(name, stated)
        if known != stated and not isinstance(known, str):
            self.objects.by_name[name] = stated if isinstance(stated, str) else _STATED_DIFFERENTLY

    def ended(self, view: PodView) -> None:
        """Record that a pod has ended; a succeeded one counts as long as it exists."""
        if view.phase is not PodPhase.SUCCEEDED or view.group is None:
            self.gone(view.uid)
            return
        view = self._homed(view)
        assert view.group is not None
        group = self._member(view.group, view)
        self._changed(view.group, view.subgroup)
        group.running.pop(view.uid, None)
        group.placed[view.uid] = group.done[view.uid] = None
        group.waiting.pop(view.uid, None)
        self._let_go_no_more(group, view.uid)

    def gone(self, uid: str) -> None:
        """Remove a pod that is gone, being deleted, or failed; repeating it changes nothing."""
        self._foreign_pod_gone(uid)
        self._disruptions.gone(uid)
        ref = self._of_pod.pop(uid, None)
        if ref is None:
            return
        group = self._groups[ref]
        self._changed(ref, group.members[uid])
        for counted in (group.placed, group.running, group.done):
            counted.pop(uid, None)
        subgroup = group.members.pop(uid)
        group.by_subgroup[subgroup] -= 1
        group.waiting.pop(uid, None)
        self._let_go_no_more(group, uid)
        if not group.members:
            del self._groups[ref]
            objects = self._of_object[object_of(ref)]
            del objects[ref]
            if not objects:
                del self._of_object[object_of(ref)]
                if ref.kind == KUEUE:
                    self.objects.by_name.pop(object_of(ref), None)

    def placed(self, uid: str) -> None:
        """Record that a pod is on its node."""
        ref = self._of_pod.get(uid)
        if ref is not None:
            group = self._groups[ref]
            if uid in group.let_go:
                group.let_go[uid] = None
            group.failures = 0
            group.placed[uid] = None
            self._changed(ref, group.members.get(uid, ""))

    def runs(self, uid: str) -> None:
        """Record that a pod runs; repeating it changes nothing."""
        ref = self._of_pod.get(uid)
        if ref is not None and uid not in self._groups[ref].running:
            self._groups[ref].running[uid] = None
            self._changed(ref, self._groups[ref].members.get(uid, ""))

    def _homed(self, view: PodView) -> PodView:
        """Return a pod as a member of its gang, which may be that of a whole tree."""
        own = view.group
        if own is not None and own.kind == VOLCANO:
            return self._in_its_subgroup(own, view)
        if own is None or own.kind != CORE:
            return view
        ref = self._of_pod.get(view.uid) or self.objects.trees.home(own)
        if ref == own:
            return view
        spec = view.spec
        if spec is not None and spec.application_id == application_of(own):
            spec = replace(spec, application_id=application_of(ref))
        return replace(view, group=ref, subgroup=own.name, spec=spec)

    def _in_its_subgroup(self, ref: GroupRef, view: PodView) -> PodView:
        """Return a pod as a member of the subgroup that its labels select."""
        stated = self.objects.by_name.get(object_of(ref), "")
        gang = None if isinstance(stated, str) else stated.get("")
        if gang is None or not gang.policies or view.labels is None:
            return view
        return replace(view, subgroup=subgroup_of(gang, view.labels))

    def _standing(self, name: Object) -> Standing | None:
        """Return the progress of an object's gang, None if it has no pods."""
        is_core = name[0] in (CORE, COMPOSITE)
        if is_core and self.objects.trees.home(GroupRef(*name)).kind == COMPOSITE:
            return self._standing_in_tree(name)
        refs = self._of_object.get(name)
        if not refs:
            return None
        ref = next(iter(refs))
        group, gang = self._groups[ref], self._gang(ref)
        if group.waiting or isinstance(gang, str):
            why = self._why_not(ref, group, self._now_ns)
        else:
            why = f"application {group.application} waits for room: muster why {group.application}"
        minimum = 0 if isinstance(gang, str) else sum(gang.minima().values())
        reason = UNREADABLE if isinstance(self.objects.by_name.get(name), str) else UNSCHEDULABLE
        return Standing(
            minimum,
            len(group.members),
            len(group.placed),
            len(group.running),
            len(group.done),
            why,
            reason,
            self._why_disrupted(name, group, gang),
        )

    def disrupted(self, uid: str, why: str) -> None:
        """Record that a pod is evicted; groups with too few pods left are disrupted."""
        ref = self._of_pod.get(uid)
        if ref is None or ref.kind not in (CORE, COMPOSITE):
            return
        self._disruptions.evicted(uid)
        group, gang = self._groups[ref], self._gang(ref)
        names = [object_of(ref)]
        if ref.kind == COMPOSITE:
            below = self.objects.trees.pods_groups_in(names[0])
            own = next((each for each in below if each[2] == group.members.get(uid)), names[0])
            names = [own, *self.objects.trees.above(own)]
        for name in names if isinstance(gang, Gang) else ():
            if not self._is_whole(name, group, gang):
                self._disruptions.begin(name, why)
                self._statuses.changed(name, self._now_ns)

    def spared(self, uid: str) -> None:
        """Record that a pod is not evicted after all."""
        self._disruptions.gone(uid)
        ref = self._of_pod.get(uid)
        if ref is not None:
            self._changed(ref, self._groups[ref].members.get(uid, ""))

    def _is_whole(self, name: Object, group: _Group, gang: Gang | str) -> bool:
        """Whether enough pods of a group are on nodes and not being evicted."""
        if isinstance(gang, str):
            return False
        left = self._disruptions.left(group.placed)
        part = part_named(gang, name)
        if part is not None:
            return part.count(group.by_part(left)) >= max(part.needed, 1)
        return len(left) >= max(sum(gang.minima().values()), 1)

    def _why_disrupted(self, name: Object, group: _Group, gang: Gang | str) -> str:
        return self._disruptions.why(name, is_whole=self._is_whole(name, group, gang))

    def _standing_in_tree(self, name: Object) -> Standing | None:
        """Return the progress of a group that is part of a tree, or its root."""
        if self.objects.trees.is_invalid(name):
            trees = self.objects.trees
            why, root = trees.why_not(name), trees.root_of(GroupRef(*name))
            gang = trees.gang(object_of(root))
            return Standing(0, 0, 0, 0, 0, why or str(gang), INVALID)
        ref = self.objects.trees.root_of(GroupRef(*name))
        group, gang = self._groups.get(ref), self._gang(ref)
        part = None if isinstance(gang, str) else part_named(gang, name)
        if group is None or part is None:
            return None
        counts = [group.by_part(of) for of in (group.members, group.placed, group.running)]
        members, placed, running = counts
        done = group.by_part(group.done)
        if group.waiting:
            why = self._why_not(ref, group, self._now_ns)
        else:
            why = f"application {group.application} waits for room: muster why {group.application}"
        return Standing(
            part.needed,
            pods_of(part, members),
            part.count(placed),
            pods_of(part, running),
            pods_of(part, done),
            why,
            disrupted=self._why_disrupted(name, group, gang),
        )

    def begin(self, now_ns: int) -> None:
        """Start to release pods, after everything was listed; existing gangs continue."""
        self._is_ready = True
        self._now_ns = now_ns
        reserved = {
            pod.spec.annotations[POD_GROUP]: pod.spec
            for pod in self._world.all_pods()
            if pod.spec.placeholder and POD_GROUP in pod.spec.annotations and not pod.deletion_ns
        }
        for ref, group in list(self._groups.items()):
            holder = reserved.get(str(ref))
            if holder is not None:
                text = holder.annotations.get(TASK_GROUPS, "")
                self._be_gang(ref, group, holder.application_id, text)
            for view in [view for view in group.waiting.values() if view.node]:
                self._on_a_node(ref, group, view, now_ns)
            self._consider(ref, now_ns)
            if not group.let_go:
                self._be_none(group)
            self._remind(ref, now_ns + seconds(TELL_SECONDS))

    # --- time -----------------------------------------------------------------------------------

    def next_due_ns(self) -> int | None:
        """Return when a group is to be checked again, or a status written."""
        due = (self._due[0][0] if self._due else None, self._statuses.next_due_ns())
        return min((at_ns for at_ns in due if at_ns is not None), default=None)

    def advance(self, now_ns: int) -> list[News]:
        """Check the groups whose pause is over, and write at waiting pods why they wait."""
        self._now_ns = now_ns
        if self._is_ready:
            self._statuses.advance(now_ns)
        news: list[News] = []
        while self._due and self._due[0][0] <= now_ns:
            ref = heappop(self._due)[2]
            group = self._groups.get(ref)
            if group is None or not self._is_ready:
                continue
            group.is_reminded = False
            news += self._consider(ref, now_ns)
            if group.waiting:
                why = self._why_not(ref, group, now_ns)
                for view in group.waiting.values():
                    self._hold_back(view, Reason.POD_GROUP, why, now_ns)
        return news

    def _remind(self, ref: GroupRef, due_ns: int) -> None:
        heappush(self._due, (due_ns, next(self._numbers), ref))

    # --- gangs that were not to be had ----------------------------------------------------------

    def put_back(self, pod: PodRecord, now_ns: int) -> list[News] | None:
        """Let a pod wait again whose gang got no places in time; None if it is in no gang."""
        group = self._gang_with(pod.uid)
        if group is None:
            return None
        group.refused = ""
        return self._put_back(group, [pod.uid], now_ns)

    def give_up(self, application: str, reason: str, now_ns: int) -> list[News] | None:
        """Let the pods of a gang without placeholders wait again; None if it is no PodGroup's."""
        ref = self._claimed.get(application)
        if ref is None:
            return None
        group = self._groups[ref]
        group.refused = reason
        return self._put_back(group, list(group.let_go), now_ns)

    def _gang_with(self, uid: str) -> _Group | None:
        ref = self._of_pod.get(uid)
        group = None if ref is None else self._groups[ref]
        return group if group is not None and group.text and uid in group.let_go else None

    def _put_back(self, group: _Group, uids: list[str], now_ns: int) -> list[News]:
        news: list[News] = []
        for uid in uids:
            pod, view = self._world.pods.get(uid), group.let_go.get(uid)
            if pod is None or view is None or pod.node:
                continue
            group.waiting[uid] = view
            self._world.drop_pod(pod)
            self._let_go_no_more(group, uid)
            news.append(PodGone(pod))
        if news and group.retry_ns <= now_ns:
            pause = min(RETRY_SECONDS * 2 ** min(group.failures, 10), MAX_RETRY_SECONDS)
            group.failures += 1
            group.retry_ns = now_ns + seconds(pause)
            ref = self._of_pod[uids[0]]
            self._remind(ref, now_ns)
            self._remind(ref, group.retry_ns)
        return news

    # --- letting go -----------------------------------------------------------------------------

    def _member(self, ref: GroupRef, view: PodView) -> _Group:
        group = self._groups.get(ref)
        if group is None:
            group = self._groups[ref] = _Group()
            self._of_object.setdefault(object_of(ref), {})[ref] = None
        if view.uid not in group.members and not view.is_deleting:
            group.members[view.uid] = view.subgroup
            group.by_subgroup[view.subgroup] = group.by_subgroup.get(view.subgroup, 0) + 1
            self._of_pod[view.uid] = ref
        return group

    def _on_a_node(self, ref: GroupRef, group: _Group, view: PodView, now_ns: int) -> list[News]:
        """Add a pod that is bound already: it belongs to the application that it names."""
        assert view.spec is not None
        if view.phase is PodPhase.RUNNING:
            self.runs(view.uid)
        group.waiting.pop(view.uid, None)
        if view.uid in group.members:
            group.let_go[view.uid] = None
        application = view.spec.application_id
        group.application = group.application or application
        return self._admit(replace(view, spec=self._spec(ref, group, view, application)), now_ns)

    def _gang(self, ref: GroupRef) -> Gang | str:
        """Return a group's gang, with the subgroups of its pods; or an error text."""
        gang, group = self.objects.gang(ref), self._groups.get(ref)
        if isinstance(gang, str) or not gang.policies or group is None:
            return gang
        found = with_subgroups(gang, group.by_subgroup)
        return f"{ref}: {found}" if isinstance(found, str) else found

    def _why_not(self, ref: GroupRef, group: _Group, now_ns: int) -> str:
        """Return why the pods of a group wait, in one sentence for all of them."""
        gang = self._gang(ref)
        if isinstance(gang, str):
            return gang
        if self.objects.has_foreign_pods(ref):
            return f"{ref}: its pods name several schedulers, so none of them starts"
        if group.retry_ns > now_ns:
            if group.wrong:
                return group.wrong
            cause = f": {group.refused}" if group.refused else ""
            return f"{ref}: its gang has had no places, and is tried again later as a whole{cause}"
        if group.lacks(gang):
            minima = gang.minima()
            least = ", ".join(f"{least} of {name}" for name, least in minima.items() if name)
            least = least or f"{gang.minimum} pods"
            return f"{ref}: {least} must start together, and some do not exist yet"
        return f"{ref}: it waits for its gang"

    def _consider(self, ref: GroupRef, now_ns: int) -> list[News]:
        """Release a group's pods, if possible."""
        group = self._groups[ref]
        gang = self._gang(ref)
        if not (self._is_ready and group.waiting) or isinstance(gang, str):
            return []
        is_there = bool(group.let_go or group.text)
        must_be_whole = not is_there or ref.kind == CORE
        if group.retry_ns > now_ns or (must_be_whole and group.lacks(gang)):
            return []
        if self.objects.has_foreign_pods(ref):
            return []
        group.wrong = ""
        if not is_there:
            try:
                self._form(ref, group, gang)
            except TaskGroupsError as error:  # who waits is told so
                group.wrong = f"{ref}: {error}"
                group.retry_ns = now_ns + seconds(RETRY_SECONDS)
                self._remind(ref, group.retry_ns)
                return []
        views, group.waiting = group.waiting, {}
        news: list[News] = []
        for view in views.values():
            group.let_go[view.uid] = view
            spec = self._spec(ref, group, view, group.application)
            news += self._admit(replace(view, spec=spec), now_ns)
        return news

    def _form(self, ref: GroupRef, group: _Group, gang: Gang) -> None:
        """Make a gang of the waiting pods. Raises TaskGroupsError."""
        pods = [view.device_claims for view in group.waiting.values()]
        ties = self._shared_ties(ref.namespace, pods) if _may_be_tied(gang) else {}
        text = group.shapes(ref, gang, ties)
        first = next(iter(group.waiting.values())).spec
        assert first is not None
        base = first.application_id
        is_own = bool(text) or (gang.tree is not None and gang.has_own_class)
        self._be_gang(ref, group, self._free(base) if is_own else base, text)
        group.gang = gang

    def _free(self, base: str) -> str:
        """Return an unused application id for a gang: its own, or the next with a number."""
        for number in count(1):
            name = base if number == 1 else f"{base[: MAX_APPLICATION_ID - _GENERATION]}-{number}"
            known = self._world.applications.get(name)
            if name not in self._claimed and (known is None or not known.is_live):
                return name
        raise AssertionError

    def _be_gang(self, ref: GroupRef, group: _Group, application: str, text: str) -> None:
        group.application, group.text = application, text
        group.names = names_by_shape(text)
        group.shared = group.shared or shared_in(text)
        if text:
            self._claimed[application] = ref

    def _be_none(self, group: _Group) -> None:
        if group.text:
            self._claimed.pop(group.application, None)
        group.application, group.text, group.names, group.gang = "", "", {}, None
        group.shared = {}

    def _let_go_no_more(self, group: _Group, uid: str) -> None:
        """Record that a pod is no longer released; the gang is over with its last one."""
        if group.let_go.pop(uid, uid) != uid and not group.let_go:
            self._be_none(group)

    def _spec(self, ref: GroupRef, group: _Group, view: PodView, application: str) -> PodSpec:
        """Return a pod's spec as a member of its application, and of its gang if there is one."""
        spec, gang = view.spec, self._gang(ref)
        assert spec is not None
        spec = replace(spec, application_id=application)
        if isinstance(gang, Gang):
            spec = with_group_defaults(spec, gang, self._classes)
            if gang.tree is not None:
                part = gang.part_of(view.subgroup)
                spec = replace(spec, gang=gang.terms, task_group_name=part)
        annotations = {**spec.annotations, POD_GROUP: str(ref)}
        if not group.text or application != group.application:
            return replace(spec, annotations=annotations)
        timeout = spec.placeholder_timeout_seconds
        if isinstance(gang, Gang) and gang.timeout_seconds:
            timeout = max(gang.timeout_seconds, MIN_TIMEOUT_SECONDS)
        name = group.names.get(group.shape_of(ref, view, spec), "")
        if ref.kind == CORE:  # whose rule is that less than its minimum holds nothing
            spec = replace(spec, gang=replace(spec.gang, starts_whole=True))
        policy = f"placeholderTimeoutInSeconds={timeout} gangSchedulingStyle=Hard"
        annotations |= {TASK_GROUPS: group.text, TASK_GROUP_NAME: name, POLICY_PARAMETERS: policy}
        return replace(
            spec,
            annotations=annotations,
            task_groups=task_groups_of(group.text),
            task_group_name=name,
            style="Hard",
            placeholder_timeout_seconds=timeout,
        )


def _may_be_tied(gang: Gang) -> bool:
    """Whether parts of a gang may be placed by the claims that they share."""
    return gang.minimum > 1 and gang.tree is None and gang.topology == NO_TOPOLOGY


def _rank(view: PodView) -> tuple[int, int, str]:
    """Return the sort key of a gang's pods: highest priority first, then oldest."""
    priority = view.spec.priority if view.spec is not None else 0
    return -priority, view.created_ns, view.name
