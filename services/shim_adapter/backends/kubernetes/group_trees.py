"""Trees of core Kubernetes groups: CompositePodGroups, and the PodGroups in them.

Rule 1: a tree is one gang, that of its root; each PodGroup is a part of it.
Rule 2: no pod of a tree starts before its root is known, and each parent up to it.
Rule 3: a tree with a cycle of parents, deeper than MAX_DEPTH, or of several Workloads, is no gang,
        and names the violated rule.
Source: the API of scheduling.k8s.io/v1alpha3, and KEP-6012. Pure: no I/O.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from services.shim_adapter.translation.workloads.pod_groups import (
    COMPOSITE,
    CORE,
    GroupRef,
    tied,
)
from services.shim_adapter.translation.workloads.replicas import Gang
from shared.messages.gang_tree import Counts, GangTree, tree_of
from shared.messages.interface import GangSettings, SubGroup

MAX_DEPTH = 4  # nesting depth of groups, including pods; deeper ones wait
MAX_PARTS = 1_000  # groups of one tree; one with more waits, with that reason
Object = tuple[str, str, str]  # kind, namespace and name
Seen = Mapping[str, Gang] | str | None


class GroupTrees:
    """The core groups. A change costs as much as there are groups below it.

    ``tie_of`` returns the node label that a PodGroup's claims restrict its pods by, "" for none.
    """

    def __init__(self, tie_of: Callable[[Object], str] = lambda _: "") -> None:
        self._tie_of = tie_of
        self._groups: dict[Object, Gang | str] = {}
        self._below: dict[Object, dict[Object, None]] = {}  # in the order of their coming

    def see(self, name: Object, seen: Seen) -> None:
        """Add, update or remove (None) a group."""
        known = self._groups.pop(name, None)
        if isinstance(known, Gang) and known.parent:
            above = _parent(name, known)
            del self._below[above][name]
            if not self._below[above]:
                del self._below[above]
        if seen is None:
            return
        found = seen if isinstance(seen, str) else seen[""]
        self._groups[name] = found
        if isinstance(found, Gang) and found.parent:
            self._below.setdefault(_parent(name, found), {})[name] = None

    def pods_groups_in(self, name: Object) -> list[Object]:
        """Return the PodGroups below a group, or itself if it is one."""
        if name[0] == CORE:
            return [name]
        return [each for each, _ in self._walk(name) if each[0] == CORE]

    def home(self, ref: GroupRef) -> GroupRef:
        """Return the gang of a PodGroup's pods: its root's, or its own without a known root."""
        at = (ref.kind, ref.namespace, ref.name)
        root = self._root(at)
        return replace(ref, kind=COMPOSITE, name=root[2]) if root not in (None, at) else ref

    def why_not(self, name: Object) -> str:
        """Return why a PodGroup in a tree has no gang, "" if it may have one."""
        found = self._groups.get(name)
        if not isinstance(found, Gang) or not found.parent:
            return ""
        seen = {name: None}
        while found.parent:
            name = _parent(name, found)
            if name in seen:
                return f"{name[0]} {name[1]}/{name[2]}: its parents go in a circle"
            seen[name] = None
            above = self._groups.get(name)
            if above is None:
                return f"{name[0]} {name[1]}/{name[2]} is not there"
            if isinstance(above, str):
                return f"{name[0]} {name[1]}/{name[2]}: {above}"
            found = above
        return ""

    def is_invalid(self, name: Object) -> bool:
        """Whether a group's tree can never be a gang as it is."""
        if name not in self._groups:
            return False
        root = self._root(name)
        if root is None:
            return "circle" in self.why_not(name)
        return isinstance(self.gang(root), str)

    def root_of(self, ref: GroupRef) -> GroupRef:
        """Return the outermost known group that contains a group, or itself."""
        found = ref
        for kind, namespace, name in self.above((ref.kind, ref.namespace, ref.name)):
            found = GroupRef(kind, namespace, name)
        return found

    def gang(self, root: Object) -> Gang | str:
        """Return the gang of a tree by its root, or an error text."""
        found = self._groups.get(root)
        if not isinstance(found, Gang):
            wrong = "it is not there" if found is None else found
            return f"{root[0]} {root[1]}/{root[2]}: {wrong}"
        parts: list[SubGroup] = []
        workloads = {found.workload: None}
        for name, depth in self._walk(root):
            part = self._groups[name]
            where = f"{name[0]} {name[1]}/{name[2]}"
            if isinstance(part, str):
                return f"{where}: {part}"
            if depth >= MAX_DEPTH:
                return f"{where}: it is {depth + 1} groups deep, at most {MAX_DEPTH}"
            if len(parts) == MAX_PARTS:
                return f"{root[0]} {root[1]}/{root[2]}: more than {MAX_PARTS} groups are in it"
            workloads[part.workload] = None
            parts.append(self._part(name, part, root))
        workloads.pop("", None)
        if len(workloads) > 1:
            named = ", ".join(sorted(workloads))
            return f"{root[0]} {root[1]}/{root[2]}: its groups are of several Workloads: {named}"
        is_whole = not found.is_preemptible
        terms = GangSettings(tuple(parts), found.minimum, found.topology, goes_whole=is_whole)
        return replace(found, terms=terms, is_preemptible=True)

    def _part(self, name: Object, gang: Gang, root: Object) -> SubGroup:
        above = _parent(name, gang)
        parent = "" if above == root else _composite(above)
        if name[0] == CORE:
            tie = self._tie_of(name) if gang.minimum else ""
            whole = tied(gang, tie).topology if tie else gang.topology
            least, is_whole = max(1, gang.minimum), not gang.is_preemptible
            return SubGroup(name[2], parent, least, topology=whole, goes_whole=is_whole)
        return SubGroup(
            _composite(name),
            parent,
            gang.minimum,
            is_group=True,
            topology=gang.topology,
            goes_whole=not gang.is_preemptible,
        )

    def above(self, name: Object) -> Iterator[Object]:
        """Yield the groups that contain a group, up to its root."""
        for _ in range(MAX_DEPTH):
            found = self._groups.get(name)
            if not isinstance(found, Gang) or not found.parent:
                return
            name = _parent(name, found)
            yield name

    def _root(self, name: Object) -> Object | None:
        """Return the root of a group's tree; None if it is unavailable."""
        if self.why_not(name):
            return None
        found = self._groups.get(name)
        while isinstance(found, Gang) and found.parent:
            name = _parent(name, found)
            found = self._groups.get(name)
        return name

    def _walk(self, root: Object) -> Iterator[tuple[Object, int]]:
        """Yield the groups below one with their depth, a parent before its children."""
        seen = {root: None}
        waiting = [(each, 1) for each in self._below.get(root, ())]
        while waiting:
            name, depth = waiting.pop(0)
            if name in seen:
                continue
            seen[name] = None
            yield name, depth
            waiting += [(each, depth + 1) for each in self._below.get(name, ())]


def part_named(gang: Gang, name: Object) -> GangTree | None:
    """Return the part of a gang's tree for a group, or None."""
    tree = tree_of(gang.terms)
    if tree is None or (name[0] == COMPOSITE and name[2] == gang.name):
        return tree
    wanted = name[2] if name[0] == CORE else _composite(name)
    waiting = list(tree.parts)
    while waiting:
        part = waiting.pop()
        if part.name == wanted:
            return part
        waiting += part.parts
    return None


def pods_of(part: GangTree, counts: Counts) -> int:
    """Return the number of pods of a part."""
    return sum(counts.get(name, 0) for name in part.minima())


def _composite(name: Object) -> str:
    """Return the name of a group of groups in a tree, distinct from those of PodGroups."""
    return f"composite {name[2]}"


def _parent(name: Object, gang: Gang) -> Object:
    return COMPOSITE, name[1], gang.parent
