"""Usage over time of a partition: begun, handed over to be kept, taken up again.

It is handed over at most every REPORT_NS, with whatever message comes then: what has changed since
the last time. The resource manager keeps it and brings it along in a recovery; what that finds is
counted as if it had been there since, so that no more is lost than has ended, and no more is won
than has begun, after the last report. ``hold`` and ``resume`` of the clock do that.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from services.core.scheduler.model.rows import Queue
from services.core.scheduler.model.usage import REPORT_NS, TOLD_PPM, Usage, UsageClock
from services.core.scheduler.statement.journal import RowSet, UsageChanged, UsageReported
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import UsageRecord
from shared.model.numbers import parse_digits


def begin(partition: Partition) -> None:
    """Count usage over time from now on, where the settings ask for it."""
    settings = partition.settings
    if settings.counts_usage:
        clock = UsageClock(settings.usage_half_life_ns, settings.usage_window_ns, partition.now_ns)
        partition.root.tree.usage = clock


def restore(partition: Partition, records: Sequence[UsageRecord]) -> None:
    """Take up in a recovery what was reported last; time stands still for it until ``resume``."""
    clock = partition.usage
    if clock is None:
        return
    for record in records:
        amounts = {name: parse_digits(text) or 0 for name, text in record.amounts.items()}
        at_ns = min(record.at_ns, partition.now_ns)
        row = clock.row_of(record.queue, record.user) if record.queue else clock.capacity
        found = clock.usage_of(amounts, at_ns)
        row.at, row.sums = found.at, found.sums
        if row is clock.capacity:
            clock.hold(at_ns)


def resume(partition: Partition) -> None:
    """Let time pass again: what was found is there."""
    if partition.usage is not None:
        partition.usage.resume()


def used_of(partition: Partition, queue: Queue, names: Sequence[str]) -> list[Fraction]:
    """Return which share of the cluster a queue has used over time, by type; [] is unknown."""
    clock = partition.usage
    if clock is None:
        return []
    clock.advance_capacity()
    queue.advance_usage()
    assert queue.used is not None
    return [clock.share(queue.used, name) for name in names]


def report(partition: Partition) -> bool:
    """Hand over what has changed, to be kept, and tell users of changes that they can see.

    Return whether it was due: the last report is old enough for another one.
    """
    clock = partition.usage
    if clock is None or partition.now_ns - clock.reported_ns < REPORT_NS:
        return False
    clock.reported_ns = partition.now_ns
    clock.advance_capacity()
    found = [_record(clock, clock.capacity, ("", ""))] if clock.capacity.sums else []
    for queue in partition.queues.values():
        queue.advance_usage()
        if queue.used is not None and _tell(clock, queue.used):
            partition.journal.record(RowSet(queue, {}))
    for tracker in partition.users.users.values():
        for path, level in tracker.levels.items():
            tracker.advance_usage(level)
            if _tell(clock, clock.row_of(path, tracker.name)):
                partition.journal.record(UsageChanged(tracker))
    found += _changed(clock)
    if found:
        partition.journal.record(UsageReported(found))
    return True


def _tell(clock: UsageClock, row: Usage) -> bool:
    """Bring the shares that users are told up to date; return whether one is another by now."""
    shares = {name: clock.share_ppb(row, name) // 1_000 for name in row.sums}
    changes = (abs(share - row.told_ppm.get(name, 0)) for name, share in shares.items())
    is_new = any(change >= TOLD_PPM for change in changes)
    if is_new:
        row.told_ppm = shares
    return is_new


def _changed(clock: UsageClock) -> Iterator[UsageRecord]:
    """Yield the rows that have changed since they were reported; they become the newest."""
    for key, row in list(clock.rows.items()):
        if row.has_grown:
            row.has_grown = False
            clock.rows[key] = clock.rows.pop(key)
            yield _record(clock, row, key)


def _record(clock: UsageClock, row: Usage, key: tuple[str, str]) -> UsageRecord:
    amounts = {name: str(value) for name, value in clock.amounts_ns(row).items() if value}
    return UsageRecord(*key, row.at.at_ns if row.at is not None else 0, amounts)
