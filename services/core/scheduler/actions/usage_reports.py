"""Reports usage over time: to be stored, and with the resulting shares for users."""

from services.core.scheduler.actions import kai_turns
from services.core.scheduler.model.queue_ledger import Division
from services.core.scheduler.model.settings import KAI
from services.core.scheduler.statement import usage_moves
from services.core.scheduler.statement.partition import Partition

_MILLION = 1_000_000


def report(partition: Partition) -> None:
    """Report usage if due; under kai also the fair shares computed from it.

    Cost: the queues, and the users with applications, at most once a minute.
    """
    if not usage_moves.report(partition):
        return
    if partition.settings.policy != KAI or partition.root.max_resource is None:
        return
    names, _, shares = kai_turns.divided(partition)
    for queue, share in shares.items():
        fair = dict(zip(names, share.fair_share, strict=True))
        parts = (int(part * _MILLION) for part in share.parts)
        weight = {name: part for name, part in zip(names, parts, strict=False) if part}
        division = Division(fair, weight)
        if division != queue.division:
            partition.set(queue, division=division)
