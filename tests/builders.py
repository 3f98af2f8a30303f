"""Builders: the scheduler and its messages in a test's own words."""

from functools import partial
from itertools import count
from typing import Any

from services.core.configuration import parse_configuration
from services.core.scheduler.actions import cycle
from services.core.scheduler.policies.questions import Questions
from services.core.scheduler.scheduler import Scheduler
from shared.messages.envelope import CORE, Envelope, Outgoing
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    NodeAction,
    NodeInfo,
    UpdateRequest,
    UpdateResponse,
)
from shared.messages.protocol import (
    PARTITION_TIMER,
    ContinueCycle,
    Heartbeat,
    SyncBegin,
    SyncEnd,
    TimerFired,
    TimerFirings,
    TimerKind,
)
from shared.model.names import DEFAULT_PARTITION
from shared.model.resources import multiply
from tools.invariants import violations

START_NS = 1_767_225_600_000_000_000


def envelope(message: Any, message_id: str = "m", *, epoch: int = 0, seq: int = 0) -> Envelope:
    return Envelope(message_id, type(message).__name__, message, CORE, "test", epoch=epoch, seq=seq)


def config_of(*leaves: str, order: str = "") -> str:
    """Return a queues.yaml with some leaves; ``order`` is the type of its nodesortpolicy."""
    root = "queues: [{name: root, submitacl: '*', queues: [%s]}]" % ", ".join(leaves)
    order = f"nodesortpolicy: {{type: {order}}}, " if order else ""
    return "partitions: [{name: default, %s%s}]" % (order, root)


class Core:
    """A scheduler, recovered and listening; every answer of it is kept."""

    def __init__(
        self,
        config: str = "",
        epoch: int = 1,
        settings: tuple = (),
        plugins: dict | None = None,
        name: str = DEFAULT_PARTITION,
        questions: Questions | None = None,
    ) -> None:
        self.reports: list[str] = []
        found = plugins or {}
        parse = partial(parse_configuration, partition=name)
        self.scheduler = Scheduler(
            "core-test", parse, found.__getitem__, self.reports.append, name=name,
            questions=questions,
        )  # fmt: skip
        if found:
            settings = (*settings, ("plugins", ",".join(found)))
        self.epoch = epoch
        self.now_ns = START_NS
        self.answers: list[Outgoing] = []
        self.goes_on = True  # with what it has cut, as its host does, but for tests of the cut
        self._ids = count(1)
        self.send(Heartbeat("t"), epoch=0)
        self.send(SyncBegin(config, settings))
        self.send(SyncEnd(0, 0, 0))

    @property
    def partition(self):
        return self.scheduler.partition

    def send(self, message: Any, *, epoch: int | None = None) -> list[UpdateResponse]:
        """Let the scheduler handle a message; return what it tells the resource manager."""
        wrapped = envelope(
            message, f"m{next(self._ids)}", epoch=self.epoch if epoch is None else epoch
        )
        out = self.scheduler.handle(wrapped, self.now_ns) + self.scheduler.flush(self.now_ns)
        self.answers += out
        found = [item.message for item in out if isinstance(item.message, UpdateResponse)]
        for note in [item.message for item in out if isinstance(item.message, ContinueCycle)]:
            is_own = self.partition.searches is not None or cycle.MAX_DECISIONS >= 1_000
            found += self.send(note) if self.goes_on and is_own else []
        return found

    def update(self, **sections: Any) -> list[UpdateResponse]:
        return self.send(UpdateRequest("rm", **sections))

    def node(self, name: str, **capacity: int) -> list[UpdateResponse]:
        return self.update(nodes=(NodeInfo(name, NodeAction.CREATE, capacity),))

    def application(
        self, name: str, queue: str = "root.default", **more: Any
    ) -> list[UpdateResponse]:
        return self.update(new_applications=(AddApplicationRequest(name, queue, **more),))

    def gang(self, name: str, members: int, resource: dict, **more: Any) -> list[UpdateResponse]:
        """Announce a gang of one task group and ask for all its placeholders."""
        self.application(name, placeholder_ask=multiply(resource, members), **more)
        return self.asks(
            name,
            [f"{name}-ph-{at}" for at in range(members)],
            resource,
            placeholder=True,
            task_group_name="tg",
        )

    def asks(
        self, application: str, keys: list[str], resource: dict, **more: Any
    ) -> list[UpdateResponse]:
        return self.update(
            asks=tuple(AllocationAsk(key, application, resource, **more) for key in keys)
        )

    def fire(self, application: str, kind: str) -> list[UpdateResponse]:
        """Let a timer of an application fire as the timer service would."""
        app = self.partition.applications[application]
        found = [(k, v) for k, v in app.timers.items() if k.startswith(kind)]
        assert found, f"{application} has no {kind} timer"
        timer_id, (generation, due_ns) = found[0]
        self.now_ns = max(self.now_ns, due_ns)
        return self.send(TimerFirings((TimerFired(timer_id, kind, application, generation),)))

    def fire_own(self, kind: str) -> list[UpdateResponse]:
        """Let the next timer of the partition itself fire; it is armed again if need be."""
        if kind not in self.partition.timers:
            raise AssertionError(f"no {kind} timer is armed: {list(self.partition.timers)}")
        generation, due_ns = self.partition.timers[kind]
        self.now_ns = max(self.now_ns, due_ns)
        fired = TimerFired(kind, TimerKind(kind), PARTITION_TIMER, generation)
        return self.send(TimerFirings((fired,)))

    def check(self) -> None:
        found = violations(self.partition)
        assert found == [], found


def section(responses: list[UpdateResponse], name: str) -> list[Any]:
    return [item for response in responses for item in getattr(response, name)]
