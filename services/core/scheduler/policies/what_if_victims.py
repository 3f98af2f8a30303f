"""Whom a forecast would have go: for asks by YuniKorn's laws, and for maxima that are enforced.

Rule 1: what was found for one counts for the next: nobody goes twice, and the room is taken once.
Rule 2: of a gang for all members or for none; else for asks in their order, up to the first that
        finds nobody.
Rule 3: asks have what they preempt once they are as old as their queue's delay, queues give back
        after theirs, parents before their children; the asks are told first.
Limit: a search for victims takes STEPS_OF_A_CHOICE of the forecast's steps.
"""

from services.core.scheduler.actions import quota_preemption
from services.core.scheduler.actions.preemption_looks import has_guarantee
from services.core.scheduler.model.preemptors import may_ever
from services.core.scheduler.model.rows import Application, Node, Queue, depth_first
from services.core.scheduler.model.settings import PREEMPT, YUNIKORN
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.victim_kinds import Victim
from services.core.scheduler.policies.preemption import guarantees_hold
from services.core.scheduler.policies.preemption_choice import NoChoice, Supposed, choose_victims
from services.core.scheduler.policies.preemption_victims import eligible
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.queue_trial import QueueTrial
from shared.messages.interface import Allocation
from shared.messages.what_if import ForecastVictim
from shared.model.names import POD_NAME_TAG
from shared.model.reasons import Law

STEPS_OF_A_CHOICE = 10


class Steps:
    """How many steps a forecast has left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, steps: int) -> bool:
        """Take so many; return whether there were enough."""
        self.left -= steps
        return self.left >= 0


class Victims:
    """Who would go, in the order in which it is found. The trial is the caller's to take back."""

    def __init__(self, partition: Partition, trial: QueueTrial, steps: Steps) -> None:
        self.told: list[ForecastVictim] = []
        self._partition = partition
        self._trial = trial
        self._steps = steps
        self._supposed = Supposed()

    # --- for asks -------------------------------------------------------------------------------

    def may_preempt(self, leaf: Queue) -> bool:
        """Return whether asks of a leaf may take from others by YuniKorn's laws at all."""
        partition, settings = self._partition, self._partition.settings
        may = settings.policy == YUNIKORN and PREEMPT in settings.actions
        return may and partition.preemption_enabled and has_guarantee(leaf)

    def preempt_for(self, application: Application, asks: list[Ask]) -> list[tuple[Ask, Node]]:
        """Return where asks would go once victims have gone; none for whom nobody would."""
        partition, leaf = self._partition, application.queue
        if not self.may_preempt(leaf):
            return []
        partition.victims.start(partition.applications.values())
        start, before = self._trial.checkpoint(), self._supposed
        self._supposed = before.copy()
        found: list[Victim] = []
        gained: list[tuple[Ask, Node]] = []
        for ask in asks:
            chosen = self._choose(leaf, ask)
            if chosen is None and application.is_gang:  # it takes nothing to hold a part
                self._trial.rollback(start)
                self._supposed = before
                return []
            if chosen is None:
                break
            gained.append((ask, chosen[0]))
            found += chosen[1]
        self.told += [_told(victim.allocation, Law.GUARANTEE, application.id) for victim in found]
        return gained

    def _choose(self, leaf: Queue, ask: Ask) -> tuple[Node, list[Victim]] | None:
        """Return where an ask would go, and who would go for it; None where nobody may."""
        partition, supposed = self._partition, self._supposed
        if not self._steps.take(STEPS_OF_A_CHOICE) or not may_ever(ask):
            return None
        victims = eligible(partition, leaf, ask)
        if not guarantees_hold(partition, leaf, ask, victims):
            return None
        chosen = choose_victims(partition, leaf, ask, victims, supposed)
        if isinstance(chosen, NoChoice):
            return None
        node, taken = chosen
        for victim in taken:
            supposed.go(victim, partition.nodes.nodes[victim.allocation.node_id])
            self._trial.evict(victim.kind.leaf, victim.kind.amount)
        supposed.come(ask, node)
        self._trial.keep(leaf, ask.shape.resource)
        return node, taken

    # --- for maxima -----------------------------------------------------------------------------

    def enforce_maxima(self) -> None:
        """Have the queues that are over a max which is enforced give back what is over."""
        gone = {*self._supposed.gone}
        for queue in depth_first(self._partition.root):
            if not quota_preemption.may_enforce(self._partition, queue):
                continue
            wanted = quota_preemption.preemptable(queue)
            if not wanted:
                continue
            for victim in quota_preemption.victims_below(self._partition, queue, wanted, gone):
                owner = self._partition.applications[victim.application_id]
                self._trial.evict(owner.queue, victim.resource_per_alloc)
                gone.add(victim.allocation_key)
                self.told.append(_told(victim, Law.QUOTA, ""))


def _told(allocation: Allocation, law: Law, winner: str) -> ForecastVictim:
    return ForecastVictim(
        allocation.allocation_key,
        allocation.allocation_tags.get(POD_NAME_TAG, ""),
        allocation.application_id,
        allocation.node_id,
        law,
        winner,
    )
