"""Places for a gang with a topology constraint, in domains of the nodes.

Rule 1: all pods that start together get a place on idle capacity, part by part of the gang's tree,
        or none does. If the members of a part are equal, a solution is found if there is one. If
        not, and each part would fit alone, each part is tried first once, on nodes in their order
        and then on the tightest.
        Nodes that pods prefer to avoid by name are used only if the others do not suffice.
Rule 2: at a required level, pods join the domain of existing members.
Rule 3: the refusal is of the first part that no domain of its level fits alone: the best domain,
        what it lacks, and the applications there. If each part would fit alone, it is the number of
        placed members.
Cost: a sum over the nodes at each level for each part, and the placement of its pods.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from services.core.scheduler.actions import gang_places
from services.core.scheduler.actions.gang_places import NoPlaces
from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.nodes.columns import Amounts, Mask
from services.core.scheduler.nodes.domains import EVERYWHERE, ResolvedTopology
from services.core.scheduler.nodes.node_order import AS_CONFIGURED
from services.core.scheduler.place import packing
from services.core.scheduler.place.domain_capacity import DomainCapacity, capacity_of
from services.core.scheduler.place.one import InDomain, node_for
from services.core.scheduler.place.place import Unplaced, place_any
from services.core.scheduler.place.regions import Region, at_home, regions, shared_out
from services.core.scheduler.statement.task_trees import Group
from services.core.scheduler.statement.tentative import Tentative
from shared.messages.gang_tree import GangTree
from shared.messages.selectors import avoided_names
from shared.model.reasons import Fact, Kind, Reason, Refusal
from shared.model.resources import fits_room

MAX_SHOWN = 3  # applications named in the best domain; the others are omitted
MAX_FIRST = 8  # parts of a gang that are tried first; further ones are not


def find(
    trial: Tentative, application: Application, *, backfill: bool = False
) -> list[tuple[Ask, Node]] | NoPlaces:
    """Find a place for every pod that starts next, or return why there is none.

    Found places are on the trial, as by ``gang_places.find``.
    """
    placer = _InDomains(trial, application, backfill=backfill)
    before = trial.checkpoint()
    kept = placer.to_reserved_nodes()
    elsewhere = placer.elsewhere()
    if elsewhere is not None:
        found = place_any(placer, [placer.tree], Region(elsewhere))
        if not isinstance(found, Unplaced):
            return kept + found
        placer.stuck_part = ""
    found = place_any(placer, placer.orders(), Region())
    if isinstance(found, Unplaced):
        trial.rollback(before)
        needs = application.placeholder_needs()
        refusal = placer.why(found.refusal)
        assert refusal is not None
        return NoPlaces(refusal, needs, placer.stuck_part)
    return kept + found


def lack(
    trial: Tentative, application: Application, over: Refusal, *, backfill: bool = False
) -> NoPlaces:
    """Return what the domains lack for a gang that exceeds all nodes' capacity together.

    Nothing is placed: it costs a sum over the nodes for each part with a level. If each part would
    fit alone, the refusal is ``over``, what all nodes lack.
    """
    placer = _InDomains(trial, application, backfill=backfill)
    refusal = placer.why(None)
    part = placer.stuck_part or placer.largest()
    return NoPlaces(refusal or over, application.placeholder_needs(), part)


class _InDomains:
    """The placer of a gang's pods in domains, on the nodes' ledgers."""

    goes_on = True

    def __init__(self, trial: Tentative, application: Application, *, backfill: bool) -> None:
        assert application.layout is not None
        self._nodes, self._application, self._backfill = trial.nodes, application, backfill
        self._gang = trial.nodes.domains.gangs[application.id]
        self.checkpoint, self.rollback, self.put = trial.checkpoint, trial.rollback, trial.place
        self.stuck_part = ""  # the task group of the first ask, or part, without a place
        self._start = trial.checkpoint()  # before the first placement
        self._at_start: dict[Shape, Amounts] = {}  # places by row at that point
        self._placed: dict[Ask, None] = {}
        self._parts: dict[Group[Ask], GangTree] = {}
        self._pods: dict[str, list[list[Ask]]] = {}  # by task group, a list for each shape
        for group, count in application.to_start():
            pods = list(islice(group.in_order(), count))
            self._pods.setdefault(group.task_group_name, []).append(pods)
        self.tree = self._group_of(application.layout)
        others = [Group(name, tasks=asks) for name, sets in self._pods.items() for asks in sets]
        self.tree = replace(self.tree, members=[*self.tree.members, *others])
        self._parts[self.tree] = application.layout
        shapes = list(self._counts(self.tree))
        self._is_of_one_shape = len(shapes) == 1 and self._is_counted(shapes[0])
        self._is_tightest_first = False  # instead of the configured node order

    def _group_of(self, part: GangTree) -> Group[Ask]:
        """Return a part of the gang with its waiting asks, hardest to place first."""
        sets = self._pods.pop(part.name, []) if not part.is_group else []
        members = sorted(map(self._group_of, part.parts), key=self._need)
        if len(sets) > 1:
            members = [Group(part.name, tasks=asks) for asks in sorted(sets, key=self._places)]
        found: Group[Ask] = Group(
            part.name,
            members=members,
            tasks=sets[0] if len(sets) == 1 else [],
            topology=part.constraint,
        )
        self._parts[found] = part
        return found

    def _need(self, group: Group[Ask]) -> tuple[bool, int, int]:
        """Return the sort key of parts: constrained ones first, then large pods, then many pods."""
        asks = self._all(group)
        return group.topology is None, self._places(asks), -len(asks)

    def _places(self, asks: list[Ask]) -> int:
        """Return for how many of the largest of some pods the nodes have places; 0 without pods."""
        shapes = dict.fromkeys(ask.shape for ask in asks)
        return min((int(self._room(shape, None).sum()) for shape in shapes), default=0)

    def to_reserved_nodes(self) -> list[tuple[Ask, Node]]:
        """Place the members whose victims ended on the nodes reserved for them."""
        kept, found = gang_places.reserved_nodes(self._application), []
        for ask in self._all(self.tree) if kept else ():
            node = kept.get(ask.key)
            if node is not None and self._nodes.filters.takes.holds(node, ask.shape):
                self.put(ask, node)
                self._placed[ask] = None
                found.append((ask, node))
        if found:
            self._start = self.checkpoint()
            self._at_start.clear()
        return found

    def elsewhere(self) -> Mask | None:
        """All rows but those of nodes that pods prefer to avoid by name; None if there are none."""
        names = {
            name: None
            for shape in self._counts(self.tree)
            for term in shape.constraints.preferred_nodes
            for name in avoided_names(term)
        }
        avoided = [node.row for name in names if (node := self._nodes.nodes.get(name)) is not None]
        if not avoided:
            return None
        rows: Mask = np.ones(len(self._nodes.rows), dtype=np.bool_)
        rows[avoided] = False
        return rows

    def waiting(self, leaf: Group[Ask]) -> list[Ask]:
        """Return the waiting members of a task group, in order."""
        return [ask for ask in leaf.tasks if ask not in self._placed]

    def _all(self, group: Group[Ask]) -> list[Ask]:
        return group.tasks + [ask for member in group.members for ask in self._all(member)]

    # --- orders ---------------------------------------------------------------------------------

    def orders(self) -> Iterator[Group[Ask]]:
        """Yield the gang's tree in its order, then with each part first.

        Other orders are skipped if a part has no place even alone.
        """
        yield self.tree
        leaves = list(_leaves(self.tree))
        if len(leaves) == 1 or self.why(None) is not None:
            return
        for self._is_tightest_first in (False, True):
            for leaf in leaves[not self._is_tightest_first : MAX_FIRST]:
                yield self._with_first(self.tree, leaf)

    def _with_first(self, group: Group[Ask], leaf: Group[Ask]) -> Group[Ask]:
        """Return a part of the gang, reordered so that ``leaf`` comes first."""
        if leaf is group or not any(each is leaf for each in _leaves(group)):
            return group
        members = [self._with_first(member, leaf) for member in group.members]
        members.sort(key=lambda member: all(each is not leaf for each in _leaves(member)))
        found = replace(group, members=members)
        if group in self._parts:
            self._parts[found] = self._parts[group]
        return found

    # --- domains --------------------------------------------------------------------------------

    def domains(self, group: Group[Ask], where: Region) -> Iterator[Region]:
        """Yield the domains that fit each shape of a group, the tightest for the first first.

        Pods with affinity to each other are also tried from several start nodes in each.
        """
        resolved = self._resolve(group)
        if resolved is None:
            yield where
            return
        if isinstance(resolved, str):
            return
        counts = self._counts(group)
        for region in self._regions(group, resolved, where):
            yield region
            for node in self._starts(counts, region.rows):
                yield replace(region, begin=node)

    def _starts(self, counts: dict[Shape, int], rows: Mask | None) -> Iterator[Node]:
        if any(shape.constraints.pod_affinity for shape in counts):
            first = next(iter(counts))
            yield from gang_places.starts(self._nodes, counts, first, rows, backfill=self._backfill)

    def _regions(
        self, group: Group[Ask], resolved: ResolvedTopology, where: Region
    ) -> Iterator[Region]:
        yield from regions(
            self._nodes.domains,
            resolved,
            self._counts(group),
            self._room,
            self._at_home(group, resolved, where),
            is_kai=self._application.is_kai,
            is_alike=self._is_of_one_shape,
        )

    def _resolve(self, group: Group[Ask]) -> ResolvedTopology | str | None:
        """Return a group's topology constraint as levels, an error text, or None without one."""
        if group.topology is None:
            return None
        return self._nodes.domains.resolve(group.topology)

    def _counts(self, group: Group[Ask]) -> dict[Shape, int]:
        """Return how many pods of each shape are to be placed, most first."""
        found: dict[Shape, int] = {}
        for ask in self._all(group):
            if ask not in self._placed:
                found[ask.shape] = found.get(ask.shape, 0) + 1
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def _room(self, shape: Shape, rows: Mask | None) -> Amounts:
        """Return how many pods of a shape fit on each row; cached before the first placement."""
        is_first = self.checkpoint() == self._start
        places = self._at_start.get(shape) if is_first else None
        if places is None:
            places = self._nodes.room.places(shape, backfill=self._backfill)
        if is_first:
            self._at_start[shape] = places
        return places if rows is None else places * rows

    def _at_home(self, group: Group[Ask], resolved: ResolvedTopology, where: Region) -> Region:
        """Return the region that a group's existing members leave to those that wait."""
        members = self._gang.members(self._parts[group])
        count = sum(self._counts(group).values())
        return at_home(self._nodes.domains, resolved, members, where, count)

    # --- nodes ----------------------------------------------------------------------------------

    def nodes_for(self, asks: list[Ask], where: Region) -> Iterator[Node | None]:
        """Yield the nodes of a leaf's asks: by numbers, or one by one if pods affect each other."""
        shape, is_free = asks[0].shape, where.topology is None or packing.is_packed(where.topology)
        if where.begin is not None and self._nodes.filters.takes.holds(where.begin, shape):
            yield where.begin
            asks, where = asks[1:], replace(where, begin=None)
            if not asks:
                return
        is_one_by_one = where.is_packed or (is_free and self._is_tightest_first)
        if where.topology is None or is_one_by_one or not self._is_counted(shape):
            yield from self._one_by_one(asks, where)
            return
        for row, number in shared_out(where, shape, self._room, len(asks)):
            for _ in range(number):
                yield self._nodes.rows[row]

    def _is_counted(self, shape: Shape) -> bool:
        """Whether capacity alone decides how many pods fit where."""
        facts = self._nodes.filters.facts
        is_free = not (facts.pods.matters(shape) or facts.volumes.matters(shape))
        return is_free and self._nodes.hooks is None and not shape.constraints.required_node

    def _one_by_one(self, asks: list[Ask], where: Region) -> Iterator[Node | None]:
        """Yield the first node in order for each ask.

        If capacity alone decides, only the last node is filtered again.
        """
        shape, nodes, filters = asks[0].shape, self._nodes, self._nodes.filters
        if where.rows is None and not where.before and not self._is_tightest_first:
            for _ in asks:
                yield node_for(nodes, shape, backfill=self._backfill)
            return
        takes = filters.backfill if self._backfill else filters.open
        stays = takes if self._backfill else filters.has_room  # filters whose result may change
        order = nodes.order.in_domains(*where.before) if where.is_packed else AS_CONFIGURED
        if self._is_tightest_first:
            order = nodes.order.packed(*where.before)
        is_counted = self._is_counted(shape)
        among = InDomain(nodes, takes, where.rows, order=order, stays=stays if is_counted else None)
        for _ in asks:
            yield among.node_for(shape)

    # --- evidence -------------------------------------------------------------------------------

    def refusal(self, ask: Ask | None, placed: list[tuple[Ask, Node]]) -> Fact:
        """Return how many members have a place."""
        total = len(self._all(self.tree))
        nodes = len({node.node_id for _, node in placed})
        amount = ask.shape.resource if ask is not None else {}
        if ask is not None and not self.stuck_part:
            self.stuck_part = ask.request.task_group_name
        return Fact(Kind.PLACES, count=len(placed), total=total, nodes=nodes, amount=amount)

    def largest(self) -> str:
        """Return the waiting task group for which the nodes lack the most places."""
        by_group: dict[str, int] = {}
        for shape, asks in self._by_shape().items():
            name = asks[0].request.task_group_name
            by_group[name] = len(asks) - int(self._room(shape, None).sum())
        return max(by_group, key=by_group.__getitem__, default="")

    def _by_shape(self) -> dict[Shape, list[Ask]]:
        found: dict[Shape, list[Ask]] = {}
        for ask in self._all(self.tree):
            found.setdefault(ask.shape, []).append(ask)
        return found

    def why(self, stuck: Fact | None) -> Refusal | None:
        """Return the refusal of the gang: what the first part lacks that no domain fits alone.

        If there is no such part, it is where the try failed (``stuck``); None: there was no try.
        """
        lacking = ((part, self._lack(part)) for part in self._constrained(self.tree))
        part, fact = next((each for each in lacking if each[1] is not None), (self.tree, None))
        if part is not self.tree:
            self.stuck_part = self._all(part)[0].request.task_group_name
        if fact is None and stuck is None:
            return None
        shape = next(iter(self._counts(self.tree)), None)
        if shape is None or (fact is not None and fact.kind == Kind.WORDS):
            return Refusal(Reason.GANG_PLACES, fact or stuck)
        return Refusal(Reason.GANG_PLACES, fact or stuck, self._nodes.room.evidence(shape))

    def _constrained(self, group: Group[Ask]) -> Iterable[Group[Ask]]:
        for member in group.members:
            yield from self._constrained(member)
        if group.topology is not None and self._counts(group):
            yield group

    def _lack(self, group: Group[Ask]) -> Fact | None:
        """Return what the best domain of a group's level lacks, None if one fits the group."""
        resolved = self._resolve(group)
        if not isinstance(resolved, ResolvedTopology):
            return Fact(Kind.WORDS, text=resolved or "")
        counts = self._counts(group)
        home = self._at_home(group, resolved, Region())
        least = _least(counts) if len(counts) > 1 and not resolved.slices else None
        if least is not None:
            counts[least] = sum(counts.values())
        for shape, count in counts.items():
            capacity = capacity_of(resolved, self._room(shape, home.rows), home.gaps)
            if resolved.required == EVERYWHERE:
                if capacity.everywhere < count:
                    return self._lack_everywhere(resolved, capacity, count, shape)
                continue
            known = resolved.tree.known(resolved.required)
            if not known:
                return Fact(Kind.WORDS, text=f"no node is in a {self._level(resolved)}")
            whole = capacity.whole[resolved.required]
            best = max(known, key=lambda at: int(whole[at]))
            if whole[best] < count:
                return self._lack_of_domain(resolved, (best, int(whole[best])), count, shape)
        return None

    def _level(self, resolved: ResolvedTopology, level: int | None = None) -> str:
        label = resolved.tree.labels[resolved.required if level is None else level]
        names = {label: name for name, label in self._nodes.domains.levels}
        return names.get(label, label)

    def _lack_everywhere(
        self, resolved: ResolvedTopology, capacity: DomainCapacity, count: int, shape: Shape
    ) -> Fact:
        places = np.count_nonzero(capacity.raw[-1])
        fact = Fact(
            Kind.MOST_PLACES,
            count=capacity.everywhere,
            total=count,
            nodes=int(places),
            amount=shape.resource,
        )
        if not resolved.slices:
            return fact
        level, size = resolved.slices[0]
        return replace(fact, kind=Kind.SLICES, name=self._level(resolved, level), most=size)

    def _lack_of_domain(
        self, resolved: ResolvedTopology, best: tuple[int, int], count: int, shape: Shape
    ) -> Fact:
        number, held = best
        level = resolved.required
        own = self._nodes.domains.rows_in(resolved.tree, level, number)
        full = np.flatnonzero(own & (self._nodes.room.places(shape) == 0)).tolist()
        takers: dict[str, int] = {}
        for row in full:
            node = self._nodes.rows[row]
            names = dict.fromkeys(each.application_id for each in node.allocations.values())
            for name in filter(self._application.id.__ne__, names):
                takers[name] = takers.get(name, 0) + 1
        shown = sorted(takers, key=lambda name: (-takers[name], name))[:MAX_SHOWN]
        return Fact(
            Kind.DOMAINS,
            name=self._level(resolved),
            text="/".join(resolved.tree.paths[level][number]),
            count=held,
            total=count,
            nodes=len(resolved.tree.known(level)),
            with_room=sum(1 for row in full if self._is_taken(row, shown)),
            names=tuple(shown),
        )

    def _is_taken(self, row: int, names: list[str]) -> bool:
        held = self._nodes.rows[row].allocations.values()
        return any(each.application_id in names for each in held)


def _least(shapes: Iterable[Shape]) -> Shape | None:
    """Return the shape that fits wherever any of the others does, None if there is none."""
    found, *others = sorted(shapes, key=lambda shape: sum(shape.resource.values()))
    is_least = all(
        shape.constraints == found.constraints and fits_room(shape.resource, found.resource)
        for shape in others
    )
    return found if is_least else None


def in_one_domain(application: Application) -> GangTree | None:
    """Return the widest part with a required level that contains all pods starting next, or None.

    These pods go to one domain of its level.
    """
    names = [group.task_group_name for group, _ in application.to_start()]
    part = application.layout
    while part is not None and not part.topology.required:
        inner = [each for each in part.parts if any(name in each.minima() for name in names)]
        part = inner[0] if len(inner) == 1 else None
    return part


def required_parts(part: GangTree) -> list[GangTree]:
    """Return the parts of a gang that require a level, from a part downwards."""
    own = [part] if part.topology.required else []
    return own + [found for each in part.parts for found in required_parts(each)]


def _leaves(group: Group[Ask]) -> Iterator[Group[Ask]]:
    """Yield the parts of a group that have pods of their own."""
    if not group.members:
        yield group
    for member in group.members:
        yield from _leaves(member)
