"""Moves of usage over time: started, reported to the resource manager, restored from it.

Changes are reported at most every REPORT_NS, with whatever message arrives then. The resource
manager stores the report and returns it in a recovery. The time between the last report and the
recovery is counted as if the recovered allocations had run throughout (``hold`` and ``resume`` of
the clock), so that the error is at most what started or ended in between.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

from services.core.scheduler.model.rows import Queue
from services.core.scheduler.model.usage import PUBLISHED_PPM, REPORT_NS, Usage, UsageClock
from services.core.scheduler.statement.journal import RowSet, UsageChanged, UsageReported
from services.core.scheduler.statement.partition import Partition
from shared.messages.interface import UsageRecord
from shared.model.numbers import parse_digits


def begin(partition: Partition) -> None:
    """Start counting usage over time, if the settings use it."""
    settings = partition.settings
    if settings.counts_usage:
        clock = UsageClock(settings.usage_half_life_ns, settings.usage_window_ns, partition.now_ns)
        partition.root.tree.usage = clock


def restore(partition: Partition, records: Sequence[UsageRecord]) -> None:
    """Restore the last report in a recovery; the clock stands still until ``resume``."""
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
    """Start the clock again: the recovered allocations are known."""
    if partition.usage is not None:
        partition.usage.resume()


def used_of(partition: Partition, queue: Queue, names: Sequence[str]) -> list[Fraction]:
    """Return a queue's part of the cluster's usage over time, by type; [] if not counted."""
    clock = partition.usage
    if clock is None:
        return []
    clock.advance_capacity()
    queue.advance_usage()
    assert queue.used is not None
    return [clock.share(queue.used, name) for name in names]


def report(partition: Partition) -> bool:
    """Record changed usage for the resource manager, and visible changes for users.

    Return whether a report was due.
    """
    clock = partition.usage
    if clock is None or partition.now_ns - clock.reported_ns < REPORT_NS:
        return False
    clock.reported_ns = partition.now_ns
    clock.advance_capacity()
    found = [_record(clock, clock.capacity, ("", ""))] if clock.capacity.sums else []
    for queue in partition.queues.values():
        queue.advance_usage()
        if queue.used is not None and _publish(clock, queue.used):
            partition.journal.record(RowSet(queue, {}))
    for tracker in partition.users.users.values():
        for path, level in tracker.levels.items():
            tracker.advance_usage(level)
            if _publish(clock, clock.row_of(path, tracker.name)):
                partition.journal.record(UsageChanged(tracker))
    found += _changed(clock)
    if found:
        partition.journal.record(UsageReported(found))
    return True


def _publish(clock: UsageClock, row: Usage) -> bool:
    """Update the shares shown to users; return whether one changed visibly."""
    shares = {name: clock.share_ppb(row, name) // 1_000 for name in row.sums}
    changes = (abs(share - row.published_ppm.get(name, 0)) for name, share in shares.items())
    is_new = any(change >= PUBLISHED_PPM for change in changes)
    if is_new:
        row.published_ppm = shares
    return is_new


def _changed(clock: UsageClock) -> Iterator[UsageRecord]:
    """Yield the rows changed since the last report, and move them to the end of the table."""
    for key, row in list(clock.rows.items()):
        if row.has_grown:
            row.has_grown = False
            clock.rows[key] = clock.rows.pop(key)
            yield _record(clock, row, key)


def _record(clock: UsageClock, row: Usage, key: tuple[str, str]) -> UsageRecord:
    amounts = {name: str(value) for name, value in clock.amounts_ns(row).items() if value}
    return UsageRecord(*key, row.at.at_ns if row.at is not None else 0, amounts)
