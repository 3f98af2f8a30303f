"""What if: a question to the core that changes nothing, and the forecast that answers it.

A question has one of: applications with their asks (of manifests, which the shim adapter has
translated), a node to drain, nodes to add, or a queue configuration.
"""

from dataclasses import dataclass

from shared.messages.commands import ManifestDocument, RefusedDocument
from shared.messages.interface import AddApplicationRequest, AllocationAsk


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A question. ``add_nodes`` nodes are ``like`` one that is there."""

    documents: tuple[ManifestDocument, ...] = ()
    applications: tuple[AddApplicationRequest, ...] = ()
    asks: tuple[AllocationAsk, ...] = ()
    refused: tuple[RefusedDocument, ...] = ()
    drain: str = ""
    add_nodes: int = 0
    like: str = ""
    queues: str = ""


@dataclass(frozen=True, slots=True)
class ForecastPlace:
    """Where a pod would go; ``name`` is the pod's own."""

    allocation_key: str
    name: str
    node_id: str


@dataclass(frozen=True, slots=True)
class ForecastApplication:
    """What would become of an application now: of ``wanted`` pods ``placed`` would start.

    ``after_evictions`` more would when the victims have gone.

    ``reason`` and ``message`` say why the others would wait, ``rejected`` why all of it would be
    refused for good. ``places`` are at most MAX_PLACES.
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
    places: tuple[ForecastPlace, ...] = ()


@dataclass(frozen=True, slots=True)
class ForecastVictim:
    """A pod that would be evicted: whose, where, for whom and under which law."""

    allocation_key: str
    name: str
    application_id: str
    node_id: str
    law: str
    winner: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """The answer. Without ``done`` there is none, and ``message`` says why."""

    done: bool
    message: str = ""
    applications: tuple[ForecastApplication, ...] = ()
    victims: tuple[ForecastVictim, ...] = ()
    refused: tuple[RefusedDocument, ...] = ()
