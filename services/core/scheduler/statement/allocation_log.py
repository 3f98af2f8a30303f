"""The allocation log of an ask: what it was told when it was tried, in YuniKorn's own words.

Rule 1: an ask keeps of every text how often it was said of it, and when last. There are no other
        texts than those below, so a log has no more lines than that.
Rule 2: only an ask that was tried itself has lines. Those behind it in its bucket wait for the same
        reason, which their queue tells once for all of them, and cost nothing here.
Rule 3: a text that is new to an ask is told with the next state event; that an old one was said
        again, at most every TELL_AGAIN_NS.
Source: docs/rules/rest.md#fields, docs/rules/scheduling.md#one-ask,
docs/rules/scheduling.md#required-nodes and docs/rules/preemption.md. ``Victims picked earlier were
released at the final stage`` is none of them: here victims are chosen and released in one step.
"""

from services.core.scheduler.model.rows import Application
from services.core.scheduler.model.shapes import Ask, LogLine
from services.core.scheduler.statement.journal import AskChanged
from services.core.scheduler.statement.partition import Partition
from shared.model.units import seconds

USER_QUOTA = "Not enough user quota"
QUEUE_QUOTA = "Not enough queue quota"
PRECONDITIONS = "Preemption preconditions failed"
GUARANTEES = "Preemption queue guarantees check failed"
NO_HELP = "Preemption does not help"
SHORTFALL = "Preemption helped but short of resources"
EXHAUSTED = "Preemption max attempts exhausted"
REQUIRED_NODE = "No fit on required node, preemption does not help"
TELL_AGAIN_NS = seconds(5)


def note(partition: Partition, application: Application, ask: Ask, text: str) -> None:
    """Write down that a text was said of an ask now."""
    if ask.log is None:
        ask.log = {}
    line = ask.log.get(text)
    is_news = line is None or partition.now_ns - line.reported_ns >= TELL_AGAIN_NS
    if line is None:
        line = ask.log[text] = LogLine()
    line.count += 1
    line.last_ns = partition.now_ns
    if is_news:
        line.reported_ns = partition.now_ns
        partition.journal.record(AskChanged(application, ask))
