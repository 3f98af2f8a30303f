"""Retained records: answers to repeated messages, and usage over time for recoveries.

Both are limited, and the oldest are dropped. Changes since the last save are in ``changed``.
"""

from services.shim_adapter.records import Answer, ReportedUsage
from shared.messages.interface import UsageRecord

MAX_ANSWERS = 10_000  # remembered: many times what a reader can have before it acknowledges
MAX_ANSWERED = 50_000  # things that they name in all
MAX_USAGE = 20_000  # records of usage over time; the one that is not renewed longest goes


class KeptAnswers:
    """The answers to messages, by message, the oldest first; ``size`` is the sum of their sizes."""

    def __init__(self) -> None:
        self.by_message: dict[str, Answer] = {}
        self.size = 0
        self.changed: dict[str, None] = {}

    def remember(self, message_id: str, answer: Answer) -> None:
        """Retain an answer, so that a repeated message gets the same one."""
        before = self.by_message.pop(message_id, None)
        self.by_message[message_id] = answer
        self.size += answer.size - (before.size if before is not None else 0)
        self.changed[message_id] = None
        while len(self.by_message) > MAX_ANSWERS or self.size > MAX_ANSWERED:
            oldest = next(iter(self.by_message))
            self.size -= self.by_message.pop(oldest).size
            self.changed[oldest] = None


class KeptUsages:
    """Usage over time as cores reported it, by queue and user; the newest last."""

    def __init__(self) -> None:
        self.by_key: dict[str, ReportedUsage] = {}
        self.changed: dict[str, None] = {}

    def record(self, partition: str, record: UsageRecord) -> None:
        """Retain a report of usage over time, unless a newer one is known."""
        key = f"{partition}/{record.queue}/{record.user}"
        before = self.by_key.pop(key, None)
        if before is not None and before.record.at_ns > record.at_ns:
            record = before.record
        self.by_key[key] = ReportedUsage(partition, record)
        self.changed[key] = None
        while len(self.by_key) > MAX_USAGE:
            oldest = next(iter(self.by_key))
            del self.by_key[oldest]
            self.changed[oldest] = None

    def of(self, partition: str) -> tuple[UsageRecord, ...]:
        """Return the reported usage of a partition."""
        return tuple(kept.record for kept in self.by_key.values() if kept.partition == partition)
