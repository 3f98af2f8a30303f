"""Pods by the labels that selectors read, and selectors by the pods they may match.

Pods that no selector distinguishes are one kind, so that selectors are compared with kinds. A
selector is indexed by one of its exact requirements (``app In (x, y)``) and its namespaces: the
selectors for a pod are found by its labels. Selectors without such a requirement are tried one by
one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from shared.messages.constraints import ALL_NAMESPACES, Constraints, PodTerm, Requirement
from shared.messages.selectors import all_hold

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Node
    from services.core.scheduler.model.shapes import Labels
    from services.core.scheduler.nodes.pod_counts import PodCount

NAMESPACE_KEY = ""  # key of the namespace among a shape's labels
Selection = tuple[tuple[Requirement, ...], tuple[str, ...]]  # selector, namespaces
K = TypeVar("K")
_Place = tuple[str, str, str]  # namespace, key, value


def selection_of(term: PodTerm, namespace: str) -> Selection:
    """Return a term's selector with its namespaces."""
    return term.selector, term.namespaces or (namespace,)


def selections_of(constraints: Constraints) -> Iterator[Selection]:
    """Yield the pod selectors of constraints."""
    for terms in (
        constraints.pod_affinity,
        constraints.pod_anti_affinity,
        constraints.preferred_pods,
        constraints.avoided_pods,
    ):
        for term in terms:
            yield selection_of(term, constraints.namespace)
    for item in constraints.spread:
        yield item.selector, (constraints.namespace,)


class PodKind:
    """Pods with equal namespace and selected labels.

    ``at`` is their number on each node, ``counts`` the counts that include them.
    """

    __slots__ = ("at", "counts", "key", "labels", "namespace")

    def __init__(self, labels: "Labels") -> None:
        self.key = labels
        self.labels = dict(labels)
        self.namespace = self.labels.pop(NAMESPACE_KEY, "")
        self.at: dict[Node, int] = {}
        self.counts: list[PodCount] = []

    def matches(self, selection: Selection) -> bool:
        """Whether a selector, in its namespaces, matches the pods."""
        selector, namespaces = selection
        is_in = ALL_NAMESPACES in namespaces or self.namespace in namespaces
        return is_in and all_hold(selector, self.labels)


@dataclass(slots=True, eq=False)
class SelectionIndex:
    """Selectors, indexed for finding those that match a pod."""

    _exact: dict[_Place, dict[Selection, None]] = field(default_factory=dict)
    _others: dict[str, dict[Selection, None]] = field(default_factory=dict)  # by namespace
    _filed: dict[Selection, Requirement | None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._filed)

    def add(self, selection: Selection) -> None:
        """Add a selector, under its requirement with the fewest other selectors."""
        if selection in self._filed:
            return
        exact = [item for item in selection[0] if item.operator == "In"]
        chosen = min(exact, key=lambda item: self._crowd(selection, item), default=None)
        self._filed[selection] = chosen
        for namespace in _namespaces(selection):
            if chosen is None:
                self._others.setdefault(namespace, {})[selection] = None
            else:
                for value in chosen.values:
                    place = (namespace, chosen.key, value)
                    self._exact.setdefault(place, {})[selection] = None

    def _crowd(self, selection: Selection, requirement: Requirement) -> int:
        return sum(
            1 + len(self._exact.get((namespace, requirement.key, value), ()))
            for namespace in _namespaces(selection)
            for value in requirement.values
        )

    def remove(self, selection: Selection) -> None:
        """Remove a selector. Raises KeyError if it is unknown."""
        chosen = self._filed.pop(selection)
        for namespace in _namespaces(selection):
            if chosen is None:
                _take_from(self._others, namespace, selection)
            else:
                for value in dict.fromkeys(chosen.values):
                    _take_from(self._exact, (namespace, chosen.key, value), selection)

    def clear(self) -> None:
        """Remove all selectors."""
        self._exact.clear()
        self._others.clear()
        self._filed.clear()

    def matching(self, kind: PodKind) -> list[Selection]:
        """Return the selectors that match a kind of pods."""
        return [selection for selection in self._near(kind) if kind.matches(selection)]

    def _near(self, kind: PodKind) -> Iterator[Selection]:
        for namespace in (kind.namespace, ALL_NAMESPACES):
            yield from self._others.get(namespace, ())
            for key, value in kind.labels.items():
                yield from self._exact.get((namespace, key, value), ())


def _namespaces(selection: Selection) -> tuple[str, ...]:
    namespaces = selection[1]
    return (ALL_NAMESPACES,) if ALL_NAMESPACES in namespaces else tuple(dict.fromkeys(namespaces))


def _take_from(places: dict[K, dict[Selection, None]], place: K, selection: Selection) -> None:
    del places[place][selection]
    if not places[place]:
        del places[place]


@dataclass(slots=True, eq=False)
class KindTable:
    """The kinds of existing pods; a kind without pods is removed."""

    kinds: dict["Labels", PodKind] = field(default_factory=dict)
    _by_label: dict[tuple[str, str], dict[PodKind, None]] = field(default_factory=dict)

    def add(self, labels: "Labels") -> PodKind:
        """Add and return the kind of some labels, which must be new."""
        kind = self.kinds[labels] = PodKind(labels)
        for label in kind.labels.items():
            self._by_label.setdefault(label, {})[kind] = None
        return kind

    def remove(self, labels: "Labels") -> None:
        """Remove a kind. Raises KeyError if it is unknown."""
        kind = self.kinds.pop(labels)
        for label in kind.labels.items():
            del self._by_label[label][kind]
            if not self._by_label[label]:
                del self._by_label[label]

    def clear(self) -> None:
        """Remove all kinds."""
        self.kinds.clear()
        self._by_label.clear()

    def matching(self, selection: Selection) -> list[PodKind]:
        """Return the kinds that a selector matches."""
        near: dict[PodKind, None] | None = None
        for requirement in selection[0]:
            if requirement.operator == "In":
                found: dict[PodKind, None] = {}
                for value in requirement.values:
                    found.update(self._by_label.get((requirement.key, value), {}))
                near = found if near is None or len(found) < len(near) else near
        candidates = self.kinds.values() if near is None else near
        return [kind for kind in candidates if kind.matches(selection)]
