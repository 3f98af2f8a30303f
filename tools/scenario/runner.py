"""Runs a scenario through all four services, on a clock that moves only when nothing is left to do.

On the in-memory bus time costs nothing. On RabbitMQ the clock is the same, but each move is paced
by real time divided by ``speed``, so that users can watch and brokers see real gaps.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.api.machine import NoAnswerError, UnsendableError
from services.api.web.documents import DocumentsError, read_documents
from services.cli.files import bytes_of
from services.cli.launcher import LocalCluster
from services.cli.node_entries import nodes_of_entry
from services.cli.yaml_file import Inline
from services.core.configuration import parse_configuration
from services.core.scheduler.scheduler import ConfigurationError
from services.shim_adapter.service import ShimOptions
from shared.bus.base import Bus
from shared.bus.tracked import TrackedBus, Traffic
from shared.messages.commands import (
    ChangeNodes,
    CommandResult,
    DeleteApplication,
    DeletePods,
    HoldConfirmations,
    NodeSpec,
    PodName,
    SubmitManifests,
    SubmitResult,
)
from shared.messages.envelope import Envelope, Outgoing
from shared.messages.interface import UpdateConfiguration, UpdateResponse
from shared.messages.sections import items_of
from shared.model.units import NANOS_PER_SECOND
from shared.runtime.clock import VirtualClock
from shared.runtime.host import HostOptions
from shared.runtime.machine import Machine
from tools.invariants import violations
from tools.scenario import expectations, messages
from tools.scenario.observed import Observed
from tools.scenario.schema import (
    DeleteStep,
    ExpectStep,
    ManifestsStep,
    PodsStep,
    Scenario,
    ScenarioError,
    Step,
    SubmitStep,
    config_text,
)

START_NS = 1_767_225_600 * NANOS_PER_SECOND  # 2026-01-01
MAX_ROUNDS = 200_000
_QUIET_ROUNDS = 12
_SETTLE_SECONDS = 120.0
_LOOK_SECONDS = 0.001  # whether a broker has said something


@dataclass(slots=True)
class Failure:
    """A step that did not hold."""

    step: int
    message: str


@dataclass(slots=True)
class Result:
    """What came of a scenario."""

    name: str
    path: str
    failures: list[Failure] = field(default_factory=list)
    messages: Counter[str] = field(default_factory=Counter)

    @property
    def holds(self) -> bool:
        """Return whether every step held."""
        return not self.failures


class StepError(AssertionError):
    """A step could not be carried out, or what it expects is not so."""


class _Observer:
    """A machine around the shim adapter's that notes the decisions that count."""

    def __init__(self, inner: Machine, observed: Observed) -> None:
        self.inner = inner
        self._observed = observed

    def handle(self, envelope: Envelope, now_ns: int) -> list[Outgoing]:
        message = envelope.message
        world = getattr(self.inner, "world", None)
        if isinstance(message, UpdateResponse) and (
            world is None or envelope.epoch >= world.epoch_of(envelope.partition)
        ):
            for _, item in items_of(message):
                self._observed.decisions.append(expectations.decision(item))
            for rejected in message.rejected_applications:
                self._observed.rejected[rejected.application_id] = rejected.reason
        return self.inner.handle(envelope, now_ns)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class ScenarioRunner:
    """Runs one scenario."""

    def __init__(
        self,
        scenario: Scenario,
        config: str,
        path: Path,
        make_bus: Callable[[], Bus],
        *,
        speed: float | None = None,
    ) -> None:
        self.scenario = scenario
        self.path = path
        self.traffic = Traffic()
        self.clock = VirtualClock(START_NS)
        self.observed = Observed()
        self._speed = speed
        self._handlers: dict[str, Callable[[Any], Coroutine[Any, Any, None]]] = {
            "submit": self._submit,
            "pods": self._pods,
            "foreign": lambda value: self._do(messages.foreign(value)),
            "manifests": self._manifests,
            "delete": self._delete,
            "node": lambda value: self._do(ChangeNodes((messages.node(value),))),
            "hold": lambda value: self._do(HoldConfirmations(value.confirmations)),
            "config": self._reload,
            "restart": self._restart,
            "advance": self.advance,
            "expect": self._expect,
        }
        self._namespaces: dict[str, SubmitStep] = {}
        self.cluster = LocalCluster(
            lambda: TrackedBus(make_bus(), self.traffic),
            self.clock,
            ShimOptions(
                config=config,
                scheduler_settings=scenario.settings,
                default_run_ns=0,
            ),
            HostOptions(heartbeat_ns=0),
            self._wrap,
        )

    def _wrap(self, name: str, machine: Machine) -> Machine:
        return _Observer(machine, self.observed) if name == "shim_adapter" else machine

    async def run(self) -> Result:
        """Run every step; the first one that does not hold ends the scenario."""
        result = Result(self.scenario.name, str(self.path))
        done = 0
        try:
            await self.cluster.start()
            await self.settle()
            await self._add_nodes()
            for step in self.scenario.steps:
                await self._step(step)
                self._check_invariants()
                done += 1
        except StepError as error:
            result.failures.append(Failure(done + 1, str(error)))
        finally:
            await self.cluster.stop()
        result.messages = self.traffic.published
        return result

    # --- time and quiet -------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until nothing more can happen at this instant. Raises StepError when it will not."""
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self._until_quiet()
        except TimeoutError:
            unread, busy = self.traffic.on_their_way(), self._at_work()
            raise StepError(
                f"not quiet after {_SETTLE_SECONDS:g} s: not acknowledged {unread}, at work {busy}"
            ) from None

    async def _until_quiet(self) -> None:
        quiet_rounds = 0
        while quiet_rounds < _QUIET_ROUNDS:
            is_quiet = self.traffic.is_quiet() and not self._at_work()
            quiet_rounds = quiet_rounds + 1 if is_quiet else 0
            await asyncio.sleep(0 if is_quiet or self._speed is None else _LOOK_SECONDS)

    def _at_work(self) -> list[str]:
        """Return the services that do not wait for a message."""
        return [name for name, running in self.cluster.running.items() if not running.is_waiting]

    async def advance(self, duration_ns: int) -> None:
        """Move time on, stopping at every moment for which something is due."""
        target_ns = self.clock.now_ns() + duration_ns
        for _ in range(MAX_ROUNDS):
            due_ns = self.clock.next_due_ns()
            if due_ns is None or due_ns > target_ns:
                await self._pace(target_ns - self.clock.now_ns())
                self.clock.move_to(target_ns)
                await self.settle()
                return
            await self._pace(due_ns - self.clock.now_ns())
            self.clock.move_to(due_ns)
            await self.settle()
        raise StepError(f"more than {MAX_ROUNDS} things were due within one advance")

    async def _pace(self, duration_ns: int) -> None:
        if self._speed:
            await asyncio.sleep(max(0, duration_ns) / NANOS_PER_SECOND / self._speed)

    def _check_invariants(self) -> None:
        broken = [
            sentence
            for core in self.cluster.cores.values()
            for sentence in violations(core.partition)
        ]
        if broken:
            raise StepError("invariants broken: " + "; ".join(broken[:5]))

    # --- steps ----------------------------------------------------------------------------------

    async def _step(self, step: Step) -> None:
        value = _present(getattr(step, step.kind))
        await self._handlers[step.kind](value)
        await self.settle()

    async def _ask(self, message: object) -> CommandResult:
        answer = await self._answer(message)
        assert isinstance(answer, CommandResult)
        return answer

    async def _answer(self, message: object) -> object:
        asking = asyncio.create_task(self.cluster.ask(message))
        try:
            answer = await asking
        except (NoAnswerError, UnsendableError) as error:
            raise StepError(str(error)) from error
        finally:
            with suppress(asyncio.CancelledError):
                asking.cancel()
        await self.settle()
        return answer

    async def _do(self, message: object) -> None:
        answer = await self._ask(message)
        if not answer.done:
            raise StepError(answer.message)

    async def _add_nodes(self) -> None:
        taken = self.scenario.begins_with
        specs = [spec for entry in self.scenario.nodes for spec in nodes_of_entry(entry)]
        for node in taken.nodes if taken is not None else ():
            specs.append(NodeSpec(node.name, "add", node.capacity, node.labels, node.taints))
            specs += [NodeSpec(node.name, "drain")] * node.is_cordoned
        if specs:
            await self._do(ChangeNodes(tuple(specs)))
        for command in taken.commands() if taken is not None else ():
            answer = await self._answer(command)
            refused = answer.refused if isinstance(answer, SubmitResult) else ()
            if refused:
                first = refused[0]
                raise StepError(f"{first.source}: {first.field_path}: {first.message}")

    async def _pods(self, step: PodsStep) -> None:
        await self._do(messages.pods(step, self._namespaces.get(step.app)))

    async def _submit(self, step: SubmitStep) -> None:
        self._namespaces[step.app] = step
        answer = await self._ask(messages.application(step))
        if not answer.done:
            self.observed.rejected[step.app] = answer.message

    async def _delete(self, wanted: DeleteStep) -> None:
        if wanted.app:
            await self._do(DeleteApplication(wanted.app))
        if wanted.pods:
            world = self.cluster.shim_machine.world
            namespaces = {pod.spec.name: pod.spec.namespace for pod in world.all_pods()}
            pods = (PodName(name, namespaces.get(name, "default")) for name in wanted.pods)
            await self._do(DeletePods(tuple(pods)))
        if wanted.foreign:
            others = (PodName(name, messages.FOREIGN_NAMESPACE) for name in wanted.foreign)
            await self._do(DeletePods(tuple(others)))

    async def _manifests(self, step: ManifestsStep) -> None:
        """Submit a file as `muster submit` does; what is refused of it can then be expected."""
        path = self.path.parent / step.file if step.file else self.path
        body = "\n---\n".join(map(json.dumps, step.documents)).encode()
        try:
            documents = read_documents(bytes_of(path) if step.file else body, path.name)
        except OSError as error:
            raise StepError(f"{path}: {error.strerror}") from error
        except DocumentsError as error:
            raise StepError(f"{path}: {error.where}{error}") from error
        run_ns = round(step.runSeconds * NANOS_PER_SECOND)
        answer = await self._answer(SubmitManifests(tuple(documents), run_ns))
        assert isinstance(answer, SubmitResult)
        refused = [f"{item.index}: {item.field_path}: {item.message}" for item in answer.refused]
        if refused:
            self.observed.rejected["manifests"] = "; ".join(refused)

    async def _reload(self, config: str | Inline) -> None:
        text = config_text(config, self.path.parent)
        answer = await self._ask(UpdateConfiguration(text))
        if not answer.done:
            self.observed.rejected["config"] = answer.message

    async def _restart(self, name: str) -> None:
        await self.cluster.crash(name)
        await self.cluster.start_service(name)

    async def _expect(self, expected: ExpectStep) -> None:
        failed = expectations.check(expected, self.cluster, self.observed)
        if failed:
            raise StepError("; ".join(failed))


def _present(value: Any) -> Any:
    assert value is not None
    return value


def check_config(path: Path, config: str) -> None:
    """Refuse a scenario whose first configuration does not hold. Raises ScenarioError."""
    try:
        parse_configuration(config)
    except ConfigurationError as error:
        raise ScenarioError(f"{path}: config: {error}") from error
