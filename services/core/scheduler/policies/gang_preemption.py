"""Whether a gang that waits would be whole if its members preempted: tried before it is let start.

Rule 1: a gang that its queue owes all that it lacks may start over the headroom, and its members
        preempt one by one. None is evicted for a gang that would hold a part only: every member
        must have a place, beside those before it, where there is room or by victims that the laws
        allow.
Rule 2: members are placed first where there is room, the others as they would preempt: a node that
        is reserved for one of them takes no member that does not preempt.
Source: docs/adr/0016, docs/adr/0034. It is tried on the queues' own ledgers and taken back.

Cost: a choice of victims a member; gangs that are alike are tried once a look.
"""

import numpy as np

from services.core.scheduler.actions.gang_places import members
from services.core.scheduler.constraints.guarantees import used
from services.core.scheduler.model.preemptors import may_ever
from services.core.scheduler.model.rows import Application, Node
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.policies.preemption_choice import NoChoice, Supposed, choose_victims
from services.core.scheduler.policies.preemption_victims import eligible
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.tentative import KEPT, PREEMPTING, Tentative


def would_be_whole(partition: Partition, application: Application) -> bool:
    """Return whether every placeholder of a gang that waits would come to a place."""
    with Tentative(partition.nodes) as trial:
        gang = _GangTrial(partition, application, trial)
        rest: list[tuple[Ask, int]] = []
        for group in members(application):
            head = group.head()
            if head is not None:
                rest.append((head, len(group.asks) - gang.placed(head, len(group.asks))))
        return all(gang.preempts(head) for head, times in rest for _ in range(times))


class _GangTrial:
    """The members of a gang, placed one beside the other on what is supposed."""

    def __init__(self, partition: Partition, application: Application, trial: Tentative) -> None:
        self._partition = partition
        self._leaf = application.queue
        self._trial = trial
        self._supposed = Supposed()

    def placed(self, ask: Ask, times: int) -> int:
        """Place members like an ask where there is room; return how many had a place."""
        table, done = self._partition.nodes, 0
        places = table.room.places(ask.shape)
        for row in np.flatnonzero(places).tolist():
            node = table.rows[row]
            while done < times and self._has_headroom(ask) and self._fits(node, ask):
                self._come(ask, node)
                done += 1
            if done == times:
                break
        return done

    def preempts(self, ask: Ask) -> bool:
        """Let one member like an ask preempt; return whether it could."""
        if not may_ever(ask):
            return False
        victims = eligible(self._partition, self._leaf, ask)
        found = choose_victims(self._partition, self._leaf, ask, victims, self._supposed)
        if isinstance(found, NoChoice):
            return False
        node, chosen = found
        for victim in chosen:
            at = self._partition.nodes.nodes[victim.allocation.node_id]
            self._supposed.go(victim, at)
            self._trial.count(victim.kind.leaf.lineage(), PREEMPTING, victim.kind.amount)
        self._come(ask, node)
        return True

    def _come(self, ask: Ask, node: Node) -> None:
        self._supposed.come(ask, node)
        self._trial.count(self._leaf.lineage(), KEPT, ask.shape.resource)

    def _fits(self, node: Node, ask: Ask) -> bool:
        return self._supposed.fits(self._partition, node, ask)

    def _has_headroom(self, ask: Ask) -> bool:
        wanted = ask.shape.resource
        return all(
            used(queue, name) + wanted.get(name, 0) <= most
            for queue in self._leaf.lineage()
            for name, most in (queue.max_resource or {}).items()
            if wanted.get(name, 0) > 0
        )
