"""When a waiting application will have started, according to the core's forecast."""

from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from services.api.web.answers import AnswerError
from shared.messages.state import ApplicationSummary
from shared.messages.what_if import Forecast, ForecastApplication
from shared.model.units import NANOS_PER_SECOND


class When(BaseModel):
    """When all of an application that waits will have started, in nanoseconds.

    Half of what was drawn has started by ``expectedStart``, nine of ten by ``latestStart`` (0: it
    may take longer than can be seen). 0 and ``noStart``: nothing is known, or only that it is not
    before ``noStartBefore``. ``waiting`` are its pods that wait; none: it waits for nothing.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    application_id: str = Field(alias="applicationID")
    queue_name: str
    sentence: str
    waiting: int
    expected_start: int = 0
    latest_start: int = 0
    no_start: str = ""
    no_start_before: int = 0
    reason: str = ""
    message: str = ""


def when_of(name: str, forecast: Forecast) -> When:
    """Convert a forecast of one application to an answer.

    Raises AnswerError 404 for an unknown application, 503 without a forecast.
    """
    if not forecast.done:
        status = 404 if forecast.message.startswith("there is no application") else 503
        raise AnswerError(status, forecast.message)
    (told,) = (item for item in forecast.applications if item.application_id == name)
    return When(
        application_id=told.application_id,
        queue_name=told.queue_name,
        sentence=f"{name} {_answer(told)}.",
        waiting=told.wanted,
        expected_start=told.expected_start_ns,
        latest_start=told.latest_start_ns,
        no_start=told.no_start,
        no_start_before=told.no_start_before_ns,
        reason=told.reason,
        message=told.message,
    )


def when_ended(summary: ApplicationSummary) -> When:
    """Return the answer for an application that has ended."""
    name = summary.application_id
    return When(
        application_id=name,
        queue_name=summary.queue_name,
        sentence=f"{name} has ended: {summary.state}.",
        waiting=0,
    )


def _answer(told: ForecastApplication) -> str:
    if not told.wanted:
        return "waits for nothing"
    if told.placed == told.wanted:
        return "is about to start"
    if told.expected_start_ns:
        start, latest = told.expected_start_ns, told.latest_start_ns
        by = f", and in nine of ten cases by {moment_text(latest)}" if latest > start else ""
        by = by if latest else ", and perhaps much later"
        return f"is expected to have started by {moment_text(start)}{by}"
    before = told.no_start_before_ns
    at_least = f": not before {moment_text(before)}" if before else ""
    return f"waits: {told.no_start}{at_least}"


def moment_text(moment_ns: int) -> str:
    """Format a moment for users, in seconds."""
    return f"{datetime.fromtimestamp(moment_ns // NANOS_PER_SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"
