"""What-if: a request to the core that changes nothing, and the forecast that answers it.

A request may combine: applications with their asks (from manifests, translated by the shim
adapter), a node to drain, nodes to add, applications to delete, a queue configuration. The forecast
covers these, and the start of waiting applications in ``when``.
"""

from dataclasses import dataclass
from enum import StrEnum

from shared.messages.commands import ManifestDocument, RefusedDocument
from shared.messages.interface import AddApplicationRequest, AllocationAsk


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A question. ``add_nodes`` nodes are ``like`` one that is there; "": like the largest."""

    documents: tuple[ManifestDocument, ...] = ()
    applications: tuple[AddApplicationRequest, ...] = ()
    asks: tuple[AllocationAsk, ...] = ()
    refused: tuple[RefusedDocument, ...] = ()
    drain: str = ""
    add_nodes: int = 0
    like: str = ""
    queues: str = ""
    delete: tuple[str, ...] = ()
    when: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ForecastPlace:
    """Where a pod would go; ``name`` is the pod's own."""

    allocation_key: str
    name: str
    node_id: str


@dataclass(frozen=True, slots=True)
class ForecastApplication:
    """What would become of an application now: of ``wanted`` pods ``placed`` would start.

    ``after_evictions`` more would start when the victims are gone.

    ``reason`` and ``message`` explain why the others would wait, ``rejected`` why all of it would
    be rejected. ``places`` are at most MAX_PLACES. ``expected_start_ns`` is when all of it would
    have started, at the median of sampled run times of pods, ``latest_start_ns`` at the 90th
    percentile. If it is 0, ``no_start`` says why, or a start was not requested; until
    ``no_start_before_ns`` it was simulated, and did not start.
    """

    application_id: str
    queue_name: str
    wanted: int
    placed: int
    after_evictions: int = 0
    is_gang: bool = False
    is_new: bool = False
    reason: str = ""
    message: str = ""
    rejected: str = ""
    expected_start_ns: int = 0
    no_start: str = ""
    places: tuple[ForecastPlace, ...] = ()
    latest_start_ns: int = 0
    no_start_before_ns: int = 0


@dataclass(frozen=True, slots=True)
class ForecastVictim:
    """A pod that would be evicted: its application, node, preemptor and policy."""

    allocation_key: str
    name: str
    application_id: str
    node_id: str
    law: str
    winner: str


class QueueChange(StrEnum):
    """What becomes of a queue under a configuration."""

    COMES = "comes"
    DRAINS = "drains"  # it takes no new application, and goes when it is empty
    STAYS = "stays"  # it would have gone: it drains no more, or was made by placement
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class ForecastQueue:
    """What a configuration makes of a queue with so many applications; "" is the partition.

    ``changed`` are the names of what is other than before.
    """

    queue_name: str
    change: QueueChange
    applications: int
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """The answer. Without ``done`` there is none, and ``message`` says why.

    ``like`` is the node that added ones equal. Of the ``drained`` pods on the drained node,
    ``moved`` would find a place elsewhere at once.
    """

    done: bool
    message: str = ""
    applications: tuple[ForecastApplication, ...] = ()
    victims: tuple[ForecastVictim, ...] = ()
    queues: tuple[ForecastQueue, ...] = ()
    refused: tuple[RefusedDocument, ...] = ()
    like: str = ""
    drained: int = 0
    moved: int = 0
