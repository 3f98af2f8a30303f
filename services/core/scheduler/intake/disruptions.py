"""Which allocations may be evicted now, and evictions that were refused.

Rule 1: what the resource manager says of an allocation holds until it says something else: one that
        is barred is no victim, one under a budget is one after all others.
Rule 2: an eviction that was refused is undone, whatever it was for: it counts in its queue as
        before, and the ask that it was for looks for victims again.
Rule 3: of one budget no more are chosen than it allows (``nodes/victim_budgets.py``).
News of what is no allocation (any more) changes nothing.
"""

from services.core.scheduler.actions import quota_preemption
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import Disruption


def take(partition: Partition, news: Disruption) -> None:
    """Take in whether an allocation may be evicted now."""
    application = partition.applications.get(news.application_id)
    key = news.allocation_key
    if application is None or key not in application.allocations:
        return
    if news.is_refused and key in application.released:
        partition.cancel_eviction(application, key)
        quota_preemption.use_changed(partition, application.queue)
    partition.disrupt(application, news)
