"""The allocation log of an ask: the results of its attempts, in YuniKorn's words.

Rule 1: for each text an ask counts how often it occurred, and when last. There are no other texts
        than those below, which bounds the log.
Rule 2: only an ask that was tried itself has entries. Others in its bucket wait for the same
        reason, which the queue reports once for all, and cost nothing here.
Rule 3: a new text is published with the next state event, a repeated one at most every
        TELL_AGAIN_NS.
Source: docs/rules/rest.md#fields, docs/rules/scheduling.md#one-ask,
docs/rules/scheduling.md#required-nodes and docs/rules/preemption.md. ``Victims picked earlier were
released at the final stage`` does not occur: victims are chosen and released in one step.
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
    """Count a text in an ask's log now."""
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
