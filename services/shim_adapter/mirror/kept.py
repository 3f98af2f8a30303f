"""What is kept for whoever asks again, or starts anew: answers to messages, usage over time.

The oldest go where there are too many; what has changed since it was saved is in ``changed``.
"""

from services.shim_adapter.records import Answer, ReportedUsage
from shared.messages.interface import UsageRecord

MAX_ANSWERS = 10_000  # remembered: many times what a reader can have before it acknowledges
MAX_ANSWERED = 50_000  # things that they name in all
MAX_USAGE = 20_000  # records of usage over time; the one that is not renewed longest goes


class KeptAnswers:
    """What messages were answered, by message, the oldest first; ``size`` is of all together."""

    def __init__(self) -> None:
        self.by_message: dict[str, Answer] = {}
        self.size = 0
        self.changed: dict[str, None] = {}

    def remember(self, message_id: str, answer: Answer) -> None:
        """Keep what a message was answered, so that it is answered the same when it comes again."""
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
        """Keep what a core has reported of usage over time, in place of what it did before."""
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
        """Return what is kept of a partition's usage over time."""
        return tuple(kept.record for kept in self.by_key.values() if kept.partition == partition)
