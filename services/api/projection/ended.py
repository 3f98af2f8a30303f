"""Ended applications: the core forgets them, the API shows them longer.

Rule: they expire after RETENTION_NS, and are removed at the next sweep, at every whole SWEEP_NS of
Unix time. A rejected application replaces an earlier rejected one of the same id.
Limits: MAX_ENDED ended applications; the oldest are dropped first.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from services.api.projection.model import ApplicationView, Model
from services.api.projection.news import state_event
from shared.messages.state import StateChange
from shared.model.states import ENDED, ApplicationEvent, ApplicationState, next_state
from shared.model.units import seconds

MAX_ENDED = 10_000
RETENTION_NS = seconds(3 * 24 * 3600)  # docs/rules/applications.md#states: terminatedTimeout
SWEEP_NS = seconds(24 * 3600)
Key = tuple[str, str]  # application id and submission


class EndedApplications:
    """When each of a model's ended applications expires and is removed."""

    def __init__(self) -> None:
        self._expiring: dict[Key, int] = {}  # when each of ``model.ended`` expires, in this order
        self._expired: dict[Key, int] = {}  # and, after that, is swept out
        self._rejected: dict[str, Key] = {}  # of ``model.ended`` those that were, by application

    def add(self, model: Model, name: Key, view: ApplicationView) -> None:
        """Add an ended application; a known one is counted once."""
        ended, summary = model.ended, view.summary
        is_known = name in ended  # by a snapshot, say, that has its end once more
        ended[name] = view
        if is_known:
            return
        key = (summary.queue_name, summary.state)
        model.ended_counts[key] = model.ended_counts.get(key, 0) + 1
        finished_ns = summary.finished_time_ns or model.time_ns
        self._expiring[name] = finished_ns + RETENTION_NS
        if summary.state == ApplicationState.REJECTED:
            self._supersede_rejected(model, name)
        if len(ended) > MAX_ENDED:
            self._forget(model, next(iter(ended)))

    def _supersede_rejected(self, model: Model, name: Key) -> None:
        """Remove an earlier rejection of the same application."""
        application_id, _ = name
        earlier = self._rejected.get(application_id)
        if earlier is not None:
            self._forget(model, earlier)
        self._rejected[application_id] = name

    def _forget(self, model: Model, name: Key) -> None:
        """Remove an ended application."""
        for line in (model.ended, self._expired, self._expiring):
            line.pop(name, None)
        if self._rejected.get(name[0]) == name:
            del self._rejected[name[0]]

    def next_due_ns(self) -> int | None:
        """Return when the next application expires or is removed, or None."""
        lines = (self._expiring, self._expired)
        return min((next(iter(line.values())) for line in lines if line), default=None)

    def expire(self, model: Model, now_ns: int) -> None:
        """Expire applications that ended long ago, and remove those that expired before."""
        for name in _due(self._expiring, now_ns):
            del self._expiring[name]
            self._expire_one(model, model.ended[name], now_ns)
            self._expired[name] = (now_ns // SWEEP_NS + 1) * SWEEP_NS
        for name in _due(self._expired, now_ns):
            self._forget(model, name)

    def _expire_one(self, model: Model, view: ApplicationView, now_ns: int) -> None:
        summary = view.summary
        if summary.state not in ENDED:  # another submission of its name has taken its place
            return
        state = next_state(ApplicationState(summary.state), ApplicationEvent.EXPIRE)
        change = StateChange(now_ns, state)
        view.summary = replace(summary, state=state, state_log=(*summary.state_log, change))
        view.written = None
        model.events.add(state_event(view.summary, change))


def _due(line: Mapping[Key, int], now_ns: int) -> list[Key]:
    """Return the due entries at the head of a line."""
    return [name for name, _ in takewhile(lambda item: item[1] <= now_ns, line.items())]
