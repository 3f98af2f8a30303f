"""Whether a gang that waits would be whole if its members preempted: tried before it is let start.

Rule 1: a gang that its queue owes all that it lacks may start over the headroom, and its members
        preempt one by one. None is evicted for a gang that would hold a part only: every member
        must have a place, beside those before it, where there is room or by victims that the
        policy allows.
Rule 2: members are placed first where there is room, the others as they would preempt: a node that
        is reserved for one of them takes no member that does not preempt.
Source: docs/adr/0016, docs/adr/0034. It is tried on an open statement and rolled back.

Cost: a choice of victims a member; gangs that are alike are tried once a pass.
"""

from collections.abc import Iterator

import numpy as np

from services.core.scheduler.actions.gang_places import members
from services.core.scheduler.constraints.guarantees import used
from services.core.scheduler.model.preemptors import may_ever
from services.core.scheduler.model.rows import Application, AskGroup
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.policies.preemption_choice import NoChoice, choose_victims
from services.core.scheduler.policies.preemption_victims import eligible
from services.core.scheduler.statement.statement import Statement, under_way


def would_be_whole(trial: Statement, application: Application) -> bool:
    """Return whether every placeholder of a waiting gang would have a place; nothing changes."""
    start = trial.checkpoint()
    rest = [ask for group in members(application) for ask in _unplaced(trial, application, group)]
    is_whole = all(_preempts(trial, application, ask) for ask in rest)
    trial.rollback(start)
    return is_whole


def _unplaced(trial: Statement, application: Application, group: AskGroup) -> Iterator[Ask]:
    """Place members of a task group where there is room; yield those that are left."""
    table = trial.partition.nodes
    asks = group.in_order()
    ask = next(asks, None)
    if ask is None:
        return
    takes = table.filters.takes
    for row in np.flatnonzero(table.room.places(ask.shape)).tolist():
        node = table.rows[row]
        while (
            ask is not None
            and _has_headroom(application, ask)
            and takes.holds(node, ask.shape, under_way(trial.partition, node))
        ):
            trial.pipeline(application, ask, node)
            ask = next(asks, None)
    if ask is not None:
        yield ask
        yield from asks


def _preempts(trial: Statement, application: Application, ask: Ask) -> bool:
    """Let a member preempt; return whether it could."""
    if not may_ever(ask):
        return False
    victims = eligible(trial.partition, application.queue, ask)
    found = choose_victims(trial, application.queue, ask, victims)
    if isinstance(found, NoChoice):
        return False
    node, chosen = found
    for victim in chosen:
        owner = trial.partition.applications[victim.allocation.application_id]
        trial.evict(owner, victim.allocation, "")
    trial.pipeline(application, ask, node)
    return True


def _has_headroom(application: Application, ask: Ask) -> bool:
    wanted = ask.shape.resource
    return all(
        used(queue, name) + wanted.get(name, 0) <= most
        for queue in application.queue.lineage()
        for name, most in (queue.max_resource or {}).items()
        if wanted.get(name, 0) > 0
    )
