"""The shapes that no node fits, by the pods whose start or end may help them.

A started or ended pod requeues the shapes whose selectors match it; an ended one also those that
its anti-affinity excluded, and those that need its ports or volume drivers. A started pod with a
shared volume makes its node better for that volume's users. Others are not requeued.

The nodes that pods closed to a shape are recorded at its refusal: freed capacity there does not
help it. Pods may have closed others since; a pod that opens one requeues the shape, as does any
change of node properties. Limit: MAX_KEPT shapes; others are tried again for capacity on any node.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from services.core.scheduler.nodes.pod_kinds import (
    KindTable,
    PodKind,
    Selection,
    SelectionIndex,
    selection_of,
    selections_of,
)
from shared.messages.constraints import Constraints

if TYPE_CHECKING:
    from services.core.scheduler.model.shapes import Labels, Shape

MAX_KEPT = 1_000  # shapes with a map of nodes that pods close to them; a byte a node each
_Port = tuple[int, str]  # number and protocol
_Volume = tuple[str, str]  # driver and claim; claim "": any of the driver


class PodWaiters:
    """The waiting shapes, and those of them to be requeued."""

    def __init__(self) -> None:
        self._places: dict[Shape, int] = {}  # order of waiting
        self._selections = SelectionIndex()
        self._by_selection: dict[Selection, dict[Shape, None]] = {}
        self._kinds = KindTable()
        self._by_labels: dict[Labels, dict[Shape, None]] = {}
        self._by_port: dict[_Port, dict[Shape, None]] = {}
        self._by_volume: dict[_Volume, dict[Shape, None]] = {}
        self._noted: dict[Shape, None] = {}
        self._open: dict[Shape, NDArray[np.bool_]] = {}  # the rows that pods allowed for each
        self._next = 0

    def __len__(self) -> int:
        return len(self._places)

    def add(self, shape: "Shape", open_rows: NDArray[np.bool_] | None = None) -> None:
        """Add a shape, if pods may affect it; a known one keeps its position.

        ``open_rows`` are the nodes that pods allow now; None: all.
        """
        self._open.pop(shape, None)
        if open_rows is not None and len(self._open) < MAX_KEPT and not open_rows.all():
            open_rows.flags.writeable = False
            self._open[shape] = open_rows
        if shape in self._places or not (shape.labels or shape.constraints.asks_about_pods):
            return
        self._next += 1
        self._places[shape] = self._next
        for selection in selections_of(shape.constraints):
            self._selections.add(selection)
            self._by_selection.setdefault(selection, {})[shape] = None
        if shape.labels not in self._by_labels:
            self._kinds.add(shape.labels)
        self._by_labels.setdefault(shape.labels, {})[shape] = None
        for port in shape.constraints.host_ports:
            self._by_port.setdefault((port.port, port.protocol), {})[shape] = None
        for volume in _volumes_of(shape.constraints):
            self._by_volume.setdefault(volume, {})[shape] = None

    def remove(self, shape: "Shape") -> None:
        """Remove a shape; an unknown one is no error."""
        self._open.pop(shape, None)
        if self._places.pop(shape, None) is None:
            return
        self._noted.pop(shape, None)
        for selection in dict.fromkeys(selections_of(shape.constraints)):
            del self._by_selection[selection][shape]
            if not self._by_selection[selection]:
                del self._by_selection[selection]
                self._selections.remove(selection)
        del self._by_labels[shape.labels][shape]
        if not self._by_labels[shape.labels]:
            del self._by_labels[shape.labels]
            self._kinds.remove(shape.labels)
        for port in dict.fromkeys((p.port, p.protocol) for p in shape.constraints.host_ports):
            _take_out(self._by_port, port, shape)
        for volume in _volumes_of(shape.constraints):
            _take_out(self._by_volume, volume, shape)

    def are_in_the_way(self, shape: "Shape", row: int) -> bool:
        """Whether pods closed a node to a waiting shape, so that capacity there does not help."""
        rows = self._open.get(shape)
        return rows is not None and row < rows.size and not rows[row]

    def note(self, pod: PodKind, constraints: Constraints, *, is_gone: bool) -> None:
        """Note the shapes that a started or ended pod may help."""
        for selection in self._selections.matching(pod):
            self._noted.update(self._by_selection[selection])
        for driver, claim in _volumes_of(constraints):
            if claim or is_gone:
                self._noted.update(self._by_volume.get((driver, claim), {}))
        if not is_gone:
            return
        for term in constraints.pod_anti_affinity:
            for kind in self._kinds.matching(selection_of(term, constraints.namespace)):
                self._noted.update(self._by_labels[kind.key])
        for port in constraints.host_ports:
            self._noted.update(self._by_port.get((port.port, port.protocol), {}))

    def note_all(self) -> None:
        """Note all shapes."""
        self._noted.update(dict.fromkeys(self._places))

    def noted(self) -> "tuple[Shape, ...]":
        """Return the noted shapes."""
        return tuple(self._noted)

    def note_only(self, shapes: "tuple[Shape, ...]") -> None:
        """Restore the shapes noted before a trial."""
        self._noted = dict.fromkeys(shapes)

    def take_noted(self) -> list["Shape"]:
        """Remove and return the noted shapes, those that wait longest first."""
        noted = sorted(self._noted, key=self._places.__getitem__)
        self._noted.clear()
        return noted


def _take_out(waiting: "dict[Any, dict[Shape, None]]", key: object, shape: "Shape") -> None:
    del waiting[key][shape]
    if not waiting[key]:
        del waiting[key]


def _volumes_of(constraints: Constraints) -> dict[_Volume, None]:
    """Return the volumes of constraints by driver, and by driver and claim."""
    found: dict[_Volume, None] = {}
    for volume in constraints.volumes:
        found[volume.driver, ""] = found[volume.driver, volume.claim] = None
    return found
