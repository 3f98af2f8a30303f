"""The guards of the system, each of which can be removed to test that the oracle notices.

A guard is a rule implemented by one function. Its entry states the rule, and replaces the function
by one without it while a simulation runs.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from services.api.replica import Replica
from services.core.scheduler.scheduler import Scheduler
from services.core.scheduler.statement.partition import Partition
from services.shim_adapter.backends.simulated import SimulatedCluster
from services.shim_adapter.idempotency import Repeatable
from services.shim_adapter.machine import ShimMachine
from services.shim_adapter.mirror import ClusterMirror
from services.shim_adapter.mirror.gangs import BoundPlaceholders
from services.shim_adapter.mirror.kept import KeptAnswers
from services.shim_adapter.mirror.world import World
from services.timers.wheel import TimerWheel
from shared.bus.errors import BusUnavailableError
from shared.messages.envelope import Outgoing
from shared.messages.interface import TerminationType, UpdateRequest, UpdateResponse
from shared.messages.protocol import TimerFired
from shared.runtime import batches, machine
from shared.runtime.batches import Batches
from shared.runtime.beats import Beats
from shared.runtime.clock import SystemClock
from shared.runtime.dedupe import HandledMessages
from shared.runtime.host import Host
from shared.runtime.members import Members
from shared.runtime.outbox import Outbox

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Guard:
    """A rule, the function that implements it, and a factory of a function without it."""

    rule: str
    owner: object
    name: str
    without: Callable[[Function], Function]


def _returning(value: object) -> Callable[[Function], Function]:
    return lambda _: lambda *_args, **_kwargs: value


def _ack_first(original: Function) -> Function:
    class Acknowledged:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        async def ack(self, deliveries: object) -> None:
            del deliveries

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    async def handle(self: Batches, subscription: Any, deliveries: Any, inside: Any) -> None:
        if deliveries:
            await subscription.ack(deliveries)
        await original(self, Acknowledged(subscription), deliveries, inside)

    return handle


def _publish_once(_: Function) -> Function:
    async def publish(self: Outbox, envelopes: Any) -> None:
        if envelopes:
            try:
                await self._bus.publish(envelopes)
            except BusUnavailableError:
                return

    return publish


def _every_epoch(original: Function) -> Function:
    def on_response(self: ClusterMirror, response: Any, epoch: int, partition: str) -> Any:
        return original(self, response, max(epoch, self.world.epoch_of(partition)), partition)

    return on_response


def _every_news(original: Function) -> Function:
    def handle(self: Scheduler, envelope: Any, now_ns: int) -> Any:
        if isinstance(envelope.message, UpdateRequest) and 0 < envelope.epoch < self._epoch:
            envelope = replace(envelope, epoch=self._epoch)
        return original(self, envelope, now_ns)

    return handle


def _save_later(original: Function) -> Function:
    def flush(self: ShimMachine, now_ns: int) -> Any:
        skipped = getattr(self, "skipped", False)
        self.skipped = not skipped  # type: ignore[attr-defined]
        return original(self, now_ns) if skipped else []

    return flush


def _same_identity(original: Function) -> Function:
    def envelope_of(outgoing: Any, **rest: Any) -> Any:
        envelope = original(replace(outgoing, epoch=0), **rest)
        return replace(envelope, epoch=outgoing.epoch)

    return envelope_of


def _highest_epoch(_: Function) -> Function:
    return lambda self, _partition: self.epoch


def _lost_with_its_node(original: Function) -> Function:
    def on_released(self: ClusterMirror, release: Any) -> None:
        if release.termination_type is not TerminationType.STOPPED_BY_RM:
            original(self, release)

    return on_released


def _bind_anywhere(original: Function) -> Function:
    def bind(self: SimulatedCluster, call: Any, now_ns: int) -> Any:
        shortage = self.world.on_nodes.shortage
        self.world.on_nodes.shortage = lambda *_: ""  # type: ignore[method-assign]
        try:
            return original(self, call, now_ns)
        finally:
            self.world.on_nodes.shortage = shortage  # type: ignore[method-assign]

    return bind


def _by_the_wall(_: Function) -> Function:
    return lambda self: self.wall_ns()


def _untold(original: Function) -> Function:
    def records(self: Batches, now_ns: int) -> Any:
        told = original(self, now_ns)
        return told if len(told) != 1 or self._own._count % 7 else []

    return records


def _whenever(_: Function) -> Function:
    def fires(_: Partition, armed: tuple[str, int], fired: TimerFired) -> bool:
        return armed[0] == fired.generation

    return fires


def _synced(original: Function) -> Function:
    def handle(self: TimerWheel, envelope: Any, now_ns: int) -> Any:
        self._is_synced = True
        return original(self, envelope, now_ns)

    return handle


def _as_it_is_now(_: Function) -> Any:
    return property(lambda self: self._machine_of().partitions)


def _backwards(original: Function) -> Function:
    def coalesced(outgoing: Any) -> Any:
        return [_with_last_first(item) for item in original(outgoing)]

    return coalesced


def _with_last_first(item: Outgoing) -> Outgoing:
    message = item.message
    if not isinstance(message, UpdateResponse):
        return item
    allocations = tuple(message.new_allocations)[::-1]
    return replace(item, message=replace(message, new_allocations=allocations))


def _beside(original: Function) -> Function:
    async def publish(self: Outbox, envelopes: Any) -> None:
        task = asyncio.create_task(original(self, envelopes))
        await asyncio.wait([task], timeout=0.02)

    return publish


GUARDS = {
    "handled-once": Guard(
        "a message that has been handled is not handled again",
        HandledMessages, "__contains__", _returning(value=False),
    ),
    "publish-before-ack": Guard(
        "what answers a message is confirmed before the message is acknowledged",
        Batches, "_handle_batch", _ack_first,
    ),
    "publish-again": Guard(
        "what is not confirmed is published again", Outbox, "publish", _publish_once
    ),
    "decisions-of-this-epoch": Guard(
        "the shim adapter refuses decisions of a lower epoch",
        ClusterMirror, "on_response", _every_epoch,
    ),
    "news-of-this-epoch": Guard(
        "the core refuses news of a lower epoch", Scheduler, "handle", _every_news
    ),
    "kept-before-said": Guard(
        "what the shim adapter did is kept before anything that follows from it is said",
        ShimMachine, "flush", _save_later,
    ),
    "answered-once": Guard(
        "a command that comes again is answered as it was, and not carried out",
        KeptAnswers, "remember", _returning(value=None),
    ),
    "timers-due": Guard(
        "a timer that fires early has no effect", Partition, "fires_as_ordered", _whenever
    ),
    "timers-asked-for": Guard(
        "timers that start ask for those that are armed", TimerWheel, "handle", _synced
    ),
    "gang-is-whole": Guard(
        "real pods wait until every group has its placeholders",
        BoundPlaceholders, "is_whole", _returning(value=True),
    ),
    "identity-of-an-epoch": Guard(
        "an answer in another epoch is another message", batches, "envelope_of", _same_identity
    ),
    "asked-again": Guard(
        "a pod whose node went before it was bound is asked for again",
        ClusterMirror, "_on_released", _lost_with_its_node,
    ),
    "room-at-the-bind": Guard(
        "a pod is bound only where its node has room at that moment",
        SimulatedCluster, "_bind", _bind_anywhere,
    ),
    "answered-by-key": Guard(
        "manifests that come again under their key are answered as they were, and not carried out",
        Repeatable, "answered", _returning(value=None),
    ),
    "clock-of-its-own": Guard(
        "a wall clock that is set while a process runs moves nothing in it",
        SystemClock, "now_ns", _by_the_wall,
    ),
    "told-with-it": Guard(
        "what a host did is told, for the trace, with what follows from it",
        Batches, "_tap_records", _untold,
    ),
    "epochs-apart": Guard(
        "each partition's decisions are fenced by its own epoch",
        World, "epoch_of", _highest_epoch,
    ),
    "shared-out": Guard(
        "who is active for two partitions more than another gives half of that up",
        Members, "_surplus", _returning(value=()),
    ),
    "soon-again": Guard(
        "who lost the broker tries again within two seconds", Host, "_pause", _returning(20.0)
    ),
    "says-that-it-works": Guard(
        "who handles its own heartbeats says to the API that it works",
        Beats, "_work", _returning(value=()),
    ),
    "last-state": Guard(
        "a replica that lost its connection shows the last known state until there is another",
        Replica, "partitions", _as_it_is_now,
    ),
    "one-by-one": Guard(
        "what is said next is said when what was said before is confirmed",
        Outbox, "publish", _beside,
    ),
    "as-decided": Guard(
        "what is sent together keeps its order", machine, "coalesced", _backwards
    ),
}  # fmt: skip


@contextmanager
def without_guard(name: str | None) -> Iterator[None]:
    """Remove a guard while this is open; None removes none."""
    if name is None:
        yield
        return
    guard = GUARDS[name]
    original = getattr(guard.owner, guard.name)
    setattr(guard.owner, guard.name, guard.without(original))
    try:
        yield
    finally:
        setattr(guard.owner, guard.name, original)
