"""The tree of a gang: task groups with a minimum of pods, groups with a minimum of parts.

Rule 1: a task group is satisfied by its minimum of pods, a group by its minimum of satisfied parts.
Rule 2: the next pods to start are those the gang lacks: of its first unsatisfied parts with enough
        pods, as many as are missing. A satisfied gang grows by one: a whole unsatisfied part, else
        a pod of the part with the lowest ratio of pods to minimum.
Rule 3: a part with too few pods to be satisfied is skipped while other parts suffice.
Source: KAI's PodGroup (minMember, minSubGroup, subGroups) and the order in which it grows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from shared.messages.interface import NO_TOPOLOGY, GangSettings, SubGroup, TopologyConstraint

Counts = Mapping[str, int]  # of pods, by task group


@dataclass(slots=True, eq=False)
class GangTree:
    """A task group, or a group of ``parts`` of which ``minimum`` are needed (negative: all)."""

    name: str
    minimum: int
    parts: "list[GangTree]" = field(default_factory=list)
    is_group: bool = False
    topology: TopologyConstraint = NO_TOPOLOGY
    goes_whole: bool = False  # all of it goes, or nothing
    _least: int = -1  # what ``least`` has found; -1: it was not asked for

    @property
    def constraint(self) -> TopologyConstraint | None:
        """Its own topology constraint, or None."""
        return self.topology if self.topology != NO_TOPOLOGY else None

    @property
    def has_topology(self) -> bool:
        """Whether it or a part of it has a topology constraint."""
        return self.topology != NO_TOPOLOGY or any(part.has_topology for part in self.parts)

    @property
    def has_slices(self) -> bool:
        """Whether pods of it are divided into equal slices, each in one domain."""
        return bool(self.topology.slices) or any(part.has_slices for part in self.parts)

    @property
    def needed(self) -> int:
        """How many pods, or parts, it needs."""
        if self.is_group and self.minimum < 0:
            return len(self.parts)
        return self.minimum

    def minima(self) -> dict[str, int]:
        """Return the minimum of every task group in it."""
        if not self.is_group:
            return {self.name: self.minimum}
        return {name: least for part in self.parts for name, least in part.minima().items()}

    @property
    def only(self) -> "GangTree | None":
        """The single task group that it consists of, None if there are several."""
        if not self.is_group:
            return self
        return self.parts[0].only if len(self.parts) == 1 and self.needed == 1 else None

    @property
    def has_choice(self) -> bool:
        """Whether it, or a part of it, needs fewer parts than it has."""
        is_free = self.is_group and self.needed < len(self.parts)
        return is_free or any(part.has_choice for part in self.parts)

    def goes_by_parts(self) -> bool:
        """Whether no part of it must be evicted as a whole."""
        return not self.goes_whole and all(part.goes_by_parts() for part in self.parts)

    def is_kept_together(self, name: str) -> bool:
        """Whether a task group is evicted only together with a part that contains it."""
        if self.goes_whole:
            return name in self.minima()
        return any(part.is_kept_together(name) for part in self.parts)

    def count(self, has: Counts) -> int:
        """Return how many pods, or satisfied parts, it has."""
        if self.is_group:
            return sum(part.is_satisfied(has) for part in self.parts)
        return has.get(self.name, 0)

    def is_satisfied(self, has: Counts) -> bool:
        """Whether these pods satisfy it."""
        return self.count(has) >= self.needed

    def core(self, has: Counts) -> dict[str, int]:
        """Return how many of its pods form its minimum, by task group (first parts of groups)."""
        if not self.is_group:
            return {self.name: min(has.get(self.name, 0), self.minimum)}
        whole = [part for part in self.parts if part.is_satisfied(has)]
        parts = whole[: self.needed] if len(whole) >= self.needed else self.parts
        return {name: count for part in parts for name, count in part.core(has).items()}

    def lacking(self, has: Counts, waiting: Counts) -> dict[str, int] | None:
        """Return the missing pods that would satisfy it; None if too few wait."""
        left = self.needed - self.count(has)
        if left <= 0:
            return {}
        if not self.is_group:
            return {self.name: left} if waiting.get(self.name, 0) >= left else None
        found: dict[str, int] = {}
        for part in self.parts:
            wanted = None if part.is_satisfied(has) else part.lacking(has, waiting)
            if wanted and left:
                found |= wanted
                left -= 1
        return None if left else found

    def missing(self, has: Counts, waiting: Counts) -> dict[str, int]:
        """Return the missing pods, whether or not enough wait."""
        found = self.lacking(has, waiting)
        if found is None:
            found = self.lacking(has, dict.fromkeys(self.minima(), 2**31))
        return found or {}

    def one_more(self, has: Counts, waiting: Counts) -> dict[str, int]:
        """Return the next pods of a satisfied tree: a whole part, or one pod; {} if none wait."""
        if not self.is_group:
            return {self.name: 1} if waiting.get(self.name, 0) > 0 else {}
        for part in self.parts:
            if not part.is_satisfied(has) and (found := part.lacking(has, waiting)):
                return found
        satisfied = [part for part in self.parts if part.is_satisfied(has)]
        for part in sorted(satisfied, key=lambda part: part.ratio(has)):
            if found := part.one_more(has, waiting):
                return found
        return {}

    def startable(self, has: Counts, waiting: Counts) -> dict[str, int]:
        """Return the pods that could start next, together; {} if too few of them wait."""
        if self.is_satisfied(has):
            return self.one_more(has, waiting)
        return self.lacking(has, waiting) or {}

    def next(self, has: Counts, waiting: Counts) -> dict[str, int]:
        """Return the pods that start next, together."""
        if self.is_satisfied(has):
            return self.one_more(has, waiting)
        return self.missing(has, waiting)

    def ratio(self, has: Counts) -> Fraction:
        """Return how much it has relative to its minimum."""
        return Fraction(self.count(has), max(1, self.needed))

    def has_surplus(self, has: Counts) -> bool:
        """Whether it stays satisfied with one pod, or part, less."""
        if self.count(has) > self.needed:
            return True
        return any(part.is_satisfied(has) and part.has_surplus(has) for part in self.parts)

    def broken(self, has: Counts) -> list[str]:
        """Return the parts of a satisfied tree that have pods, but too few to be satisfied."""
        if not (self.is_group and self.is_satisfied(has)):
            return []
        found: list[str] = []
        for part in self.parts:
            if part.is_satisfied(has):
                found += part.broken(has)
            elif any(has.get(name) for name in part.minima()):
                found.append(part.name)
        return found

    def elasticity(self, has: Counts) -> int:
        """Return -1 below the minimum, 0 at it, 1 above it."""
        return int(self.has_surplus(has)) if self.is_satisfied(has) else -1

    @property
    def least(self) -> int:
        """The fewest pods that satisfy it."""
        if self._least < 0:
            parts = sorted(part.least for part in self.parts)
            self._least = sum(parts[: self.needed]) if self.is_group else self.minimum
        return self._least

    def turn(self, has: Counts) -> int:
        """Return the sort key of growing gangs: the smallest gets its next pods first."""
        return turn_of(self.elasticity(has), sum(has.values()), self.least)


def turn_of(elasticity: int, pods: int, least: int) -> int:
    """Return the sort key of a gang with ``pods`` pods and a minimum of ``least``.

    -1 below the minimum, 0 at it; above it, it grows with the ratio of pods to minimum, in
    thousandths, so that the gangs of a leaf grow evenly.
    """
    return elasticity if elasticity <= 0 else 1 + 1000 * pods // max(1, least)


def follows(news: GangSettings, known: GangSettings) -> bool:
    """Whether a gang without placeholders may change to new settings; minimums may differ.

    All its parts must still exist, unchanged. New parts are allowed in groups that state how many
    parts they need: running gangs then lack none of them. The gang's own topology must be
    unchanged, and a gang without any topology constraint may not get one.
    """

    def parts(terms: GangSettings) -> dict[str, tuple[object, ...]]:
        return {part.name: (part.parent, part.is_group, part.topology) for part in terms.subgroups}

    before, after = tree_of(known), tree_of(news)
    if before is None or after is None or before.has_topology is not after.has_topology:
        return False
    were, are = parts(known), parts(news)
    needed = {"": news.minimum} | {part.name: part.minimum for part in news.subgroups}
    added = [part for part in news.subgroups if part.name not in were]
    is_free = all(needed.get(part.parent, -1) >= 0 for part in added)
    alike = all(are.get(name) == part for name, part in were.items())
    return alike and is_free and news.topology == known.topology


def tree_of(terms: GangSettings) -> GangTree | None:
    """Return the tree of a gang, or None without subgroups.

    A part whose parent does not precede it is added to the root.
    """
    return _tree(terms, terms.subgroups)


def layout_of(terms: GangSettings) -> GangTree | None:
    """Return the tree of a gang with placeholders, for its topology constraints; None without."""
    return _tree(terms, terms.layout)


def _tree(terms: GangSettings, parts: tuple[SubGroup, ...]) -> GangTree | None:
    if not parts:
        return None
    root = GangTree(
        "", terms.minimum, is_group=True, topology=terms.topology, goes_whole=terms.goes_whole
    )
    groups = {"": root}
    for part in parts:
        made = GangTree(
            part.name,
            part.minimum,
            is_group=part.is_group,
            topology=part.topology,
            goes_whole=part.goes_whole,
        )
        groups.get(part.parent, root).parts.append(made)
        if part.is_group:
            groups[part.name] = made
    return root
