"""Whether allocations may be evicted (PodDisruptionBudgets), and evictions that were refused.

Rule 1: the resource manager's last report on an allocation holds: a blocked one is never a victim,
        one under a budget is chosen after all others.
Rule 2: a refused eviction is undone, whatever its reason: the allocation counts in its queue as
        before, and the preemptor's search for victims starts again.
Rule 3: no more victims of one budget are chosen than it allows (``nodes/victim_budgets.py``).
A report on an unknown allocation changes nothing.
"""

from services.core.scheduler.actions import quota_preemption
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Disruption


def take(partition: Partition, news: Disruption) -> None:
    """Record whether an allocation may be evicted now; undo its eviction if that was refused."""
    application = partition.applications.get(news.application_id)
    key = news.allocation_key
    if application is None or key not in application.allocations:
        return
    if news.is_refused and key in application.released:
        partition.cancel_eviction(application, key)
        quota_preemption.use_changed(partition, application.queue)
    partition.disrupt(application, news)
