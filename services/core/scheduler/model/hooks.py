"""The hooks of the registered plugins: calls, errors, and waiting lists.

Rule 1: all hooks of a kind are called, in the order of registration, until one refuses.
Rule 2: a hook that raises, or returns an invalid answer, has refused, and the refusal names its
        plugin; in an order its application comes last. Every error is counted, the first of each
        hook reported. A failed notification is not repeated.
Rule 3: what a hook refused is requeued when what it declares to read has changed; if it declares
        nothing, at every cycle, and again at the end of one that placed anything. Answers that
        depend on node properties only are cached until these change.
Source: docs/adr/0037.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from operator import index
from typing import TYPE_CHECKING, Any

from services.core.scheduler.model.policy import Policy, Reads, Register, Victim, reads
from services.core.scheduler.model.rows import PluginWaitList, WaitList
from shared.messages.interface import Allocation
from shared.model.reasons import Fact, Kind, Reason, Refusal
from shared.model.resources import ResourceView

if TYPE_CHECKING:
    from services.core.scheduler.model.rows import Application, Node
    from services.core.scheduler.model.shapes import Shape

LAST = 2**63  # the sort key of an application for which a hook raised
MAX_SENTENCE = 500  # characters of what a plugin says
KINDS = tuple(Policy.__dataclass_fields__)
Find = Callable[[str], Register]
Report = Callable[[str], None]


class PluginError(ValueError):
    """A named plugin cannot be used; ``why`` is the reason."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"plugin {name}: {why}")
        self.why = why


@dataclass(slots=True, eq=False)
class Hook:
    """One hook of a plugin. ``seen`` is the version of what it reads at the last requeue."""

    plugin: str
    kind: str
    call: Callable[..., Any]
    reads: Reads | None
    wait_list: PluginWaitList = field(default_factory=PluginWaitList)
    seen: int = -1
    errors: int = 0
    error: str = ""

    @property
    def is_fixed(self) -> bool:
        """Whether its answer depends on node properties only."""
        return self.reads is not None and self.reads in Reads.NODES


class Hooks:
    """All registered hooks, a list for each kind."""

    def __init__(
        self,
        policies: Iterable[tuple[str, Policy]],
        report: Report,
        applications: "Mapping[str, Application]",
    ) -> None:
        self.facts = 0  # incremented when a node is added, removed, or changed
        self.moves = 0  # incremented when pods or allocated amounts change
        self.refused: list[str] = []  # texts about named plugins that cannot be used
        self._report = report
        self._applications = applications
        found: dict[str, list[Hook]] = {kind: [] for kind in KINDS}
        for plugin, policy in policies:
            for kind in KINDS:
                found[kind] += [
                    Hook(plugin, kind, call, getattr(call, "reads", None))
                    for call in getattr(policy, kind)
                ]
        self._by_kind = found
        self.order, self.capacity = found["order"], found["capacity"]
        self._victim, self._scenario = found["victim"], found["scenario"]
        self._on_allocate, self._on_deallocate = found["on_allocate"], found["on_deallocate"]
        self.fixed = [hook for hook in found["feasible"] if hook.is_fixed]
        self.moving = [hook for hook in found["feasible"] if not hook.is_fixed]
        self.score = found["score"]

    def _all(self) -> Iterator[Hook]:
        for hooks in self._by_kind.values():
            yield from hooks

    # --- calls ------------------------------------------------------------------------------------

    def _ask(self, hook: Hook, read: Callable[[Any], Any], *about: object) -> Any:
        """Return a hook's answer, converted by ``read``; None if it raised."""
        try:
            return read(hook.call(*about))
        except Exception as error:  # noqa: BLE001 - foreign code: the core goes on
            hook.errors += 1
            if not hook.error:
                hook.error = f"{type(error).__name__}: {error}"[:MAX_SENTENCE]
                self._report(f"plugin {hook.plugin}: {hook.kind} raised {hook.error}")
            return None

    def warnings(self) -> tuple[str, ...]:
        """Return a text for every plugin that cannot be used, and every hook that raised."""
        raised = [
            f"plugin {hook.plugin}: {hook.kind} raised {hook.error} ({hook.errors} times)"
            for hook in self._all()
            if hook.errors
        ]
        return (*self.refused, *raised)

    def order_of(self, application: "Application") -> tuple[int, ...]:
        """Return the sort keys before the leaf's own order."""
        keys = (self._ask(hook, index, application) for hook in self.order)
        return tuple(LAST if key is None else key for key in keys)

    def no_capacity(
        self, application: "Application", amount: ResourceView
    ) -> tuple[Refusal, WaitList] | None:
        """Return why an application may not allocate an amount, and its waiting list, or None."""
        for hook in self.capacity:
            why = self._ask(hook, _sentence, application, amount)
            if why is None:
                why = f"{hook.kind} raised {hook.error}"
            if why:
                return Refusal(
                    Reason.PLUGIN, Fact(Kind.PLUGIN, hook.plugin, text=why)
                ), hook.wait_list
        return None

    @property
    def judge_victims(self) -> bool:
        """Whether a hook filters victims."""
        return bool(self._victim)

    def may_take(self, action: str, victim: Allocation, preemptor: "Application") -> bool:
        """Whether an action may evict an allocation for an application."""
        about = (action, self._victim_of(victim), preemptor)
        return all(self._ask(hook, _truth, *about) for hook in self._victim)

    def agree(self, action: str, victims: Sequence[Allocation], preemptor: "Application") -> bool:
        """Whether an action may evict all of some allocations for an application."""
        about = (action, [self._victim_of(victim) for victim in victims], preemptor)
        return all(self._ask(hook, _truth, *about) for hook in self._scenario)

    def _victim_of(self, allocation: Allocation) -> Victim:
        return Victim(self._applications[allocation.application_id], allocation)

    @property
    def order_moves(self) -> bool:
        """Whether an application's sort key may change by other applications or its usage."""
        return any(hook.reads != Reads.NOTHING for hook in self.order)

    @property
    def minds_each(self) -> bool:
        """Whether a hook must be called between two decisions."""
        return bool(self.capacity or self.are_notified or self.needs_scan or self.order_moves)

    @property
    def are_notified(self) -> bool:
        """Whether a hook is notified of allocations on nodes."""
        return bool(self._on_allocate or self._on_deallocate)

    # --- nodes ------------------------------------------------------------------------------------

    @property
    def needs_scan(self) -> bool:
        """Whether node order or filters depend on hooks that no index covers."""
        return bool(self.score or self.moving)

    def admits_as_it_is(self, node: "Node", shape: "Shape") -> bool:
        """Whether the filters that read node properties only accept a node."""
        return all(self._ask(hook, _truth, node, shape) for hook in self.fixed)

    def admits_now(self, node: "Node", shape: "Shape") -> bool:
        """Whether the other filters accept a node."""
        return all(self._ask(hook, _truth, node, shape) for hook in self.moving)

    def is_score_fixed(self, number: int) -> bool:
        """Whether a score hook reads node properties only."""
        return self.score[number].is_fixed

    def scored(self, number: int, node: "Node", shape: "Shape") -> float:
        """Return a hook's score of a node; infinity if it raised."""
        return self._scored(self.score[number], node, shape)

    def _scored(self, hook: Hook, node: "Node", shape: "Shape") -> float:
        value = self._ask(hook, _number, node, shape)
        return inf if value is None else float(value)

    def why_closed(self, nodes: "Sequence[Node]", shape: "Shape") -> str:
        """Return which plugins refuse all of some nodes, "" if a node is accepted."""
        hooks = [*self.fixed, *self.moving]
        closing: dict[str, None] = {}
        for node in nodes:
            closed = [h for h in hooks if not self._ask(h, _truth, node, shape)]
            closed = closed or [h for h in self.score if self._scored(h, node, shape) == inf]
            if not closed:
                return ""
            for hook in closed:
                raised = f" ({hook.kind} raised {hook.error})" if hook.errors else ""
                closing[f"plugin {hook.plugin}{raised}"] = None
        return f"{', '.join(closing)}: none of {len(nodes)} matching nodes may be taken"

    # --- reporting --------------------------------------------------------------------------------

    def allocation_added(self, allocation: Allocation) -> None:
        """Notify plugins that an allocation was added to a node."""
        for hook in self._on_allocate:
            self._ask(hook, _anything, self._applications[allocation.application_id], allocation)

    def allocation_removed(self, allocation: Allocation) -> None:
        """Notify plugins that an allocation was removed from a node."""
        for hook in self._on_deallocate:
            self._ask(hook, _anything, self._applications[allocation.application_id], allocation)

    # --- requeueing -------------------------------------------------------------------------------

    def is_due(self, hook: Hook) -> bool:
        """Whether a hook's answers may have changed since the last call of this."""
        if hook.reads is None:
            return True
        read = self.facts if Reads.NODES in hook.reads else 0
        read += self.moves if hook.reads & (Reads.PODS | Reads.LEDGERS) else 0
        is_other = read != hook.seen
        hook.seen = read
        return is_other

    def are_due(self, hooks: Iterable[Hook]) -> bool:
        """Whether the answers of any of some hooks may have changed."""
        return sum(map(self.is_due, hooks)) > 0


def _truth(answer: Any) -> bool:
    if answer is None:
        raise TypeError("the answer is None, not True or False")
    return bool(answer)


def _number(answer: Any) -> float:
    value = float(answer)
    if not isfinite(value):
        raise ValueError(f"the answer is {value}, no number")
    return value


def _sentence(answer: Any) -> str:
    if not isinstance(answer, str):
        raise TypeError(f"the answer is a {type(answer).__name__}, not a sentence")
    return answer[:MAX_SENTENCE]


def _anything(_: Any) -> None:
    """Ignore the answer."""


def registered(
    names: Sequence[str], find: Find, report: Report, applications: "Mapping[str, Application]"
) -> Hooks | None:
    """Return the hooks of the named plugins, in order; None if none is named.

    A plugin that cannot be used is replaced by a hook that refuses everything: its rule must not be
    broken because it is missing.
    """
    if not names:
        return None
    policies: list[tuple[str, Policy]] = []
    refused: list[str] = []
    for name in dict.fromkeys(names):
        policy = Policy()
        try:
            find(name)(policy)
        except Exception as error:  # noqa: BLE001 - foreign code: the core goes on
            raised = f"register raised {type(error).__name__}: {error}"
            why = (error.why if isinstance(error, PluginError) else raised)[:MAX_SENTENCE]
            refused.append(f"plugin {name}: {why}; nothing is started without it")
            report(f"plugin {name}: {why}")
            policy = Policy(capacity=[_closed(why)])
        policies.append((name, policy))
    hooks = Hooks(policies, report, applications)
    hooks.refused = refused
    return hooks


def _closed(why: str) -> Callable[["Application", ResourceView], str]:
    @reads(Reads.NOTHING)
    def capacity(_: "Application", __: ResourceView) -> str:
        return why

    return capacity
