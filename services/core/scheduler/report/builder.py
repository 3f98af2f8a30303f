"""The report builder: journal entries to messages, timer orders and changed values.

Each entry is read in order by all its readers: responses to the resource manager
(``responses.py``), changes for the API (``changes.py``), and events for users (``events.py``).
"""

from collections.abc import Callable, Iterable
from typing import Any

from services.core.scheduler.model.rows import Application
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.report import events
from services.core.scheduler.report.changes import Changes
from services.core.scheduler.report.responses import Responses
from services.core.scheduler.statement import journal

_Reader = Callable[[Any], None]


class ReportBuilder:
    """Reads journal entries; the results are in ``responses`` and ``changes``."""

    def __init__(self) -> None:
        self.responses, self.changes = Responses(), Changes()
        self._now_ns = 0
        self._readers: dict[type, list[_Reader]] = {journal.TimePassed: [self._time_passed]}
        for readers in (
            self.responses.readers,
            self.changes.readers,
            dict.fromkeys((journal.ClaimMade, journal.ClaimEnded), self._claim),
            dict.fromkeys(events.WRITERS, self._write_events),
        ):
            for kind, reader in readers.items():
                self._readers.setdefault(kind, []).append(reader)

    def read(self, entries: Iterable[object]) -> None:
        """Read entries in order."""
        readers_of = self._readers
        for entry in entries:
            for reader in readers_of.get(type(entry), ()):
                reader(entry)

    def _time_passed(self, entry: journal.TimePassed) -> None:
        self._now_ns = entry.now_ns

    def _claim(self, entry: journal.ClaimMade | journal.ClaimEnded) -> None:
        """Report the reservation of a waiting ask that has preempted."""
        claim = entry.claim
        if not claim.is_reservation:
            return
        application, ask = claim.application, claim.ask
        self.changes.show_application(application)
        if claim.has_preempted and _waits(application, ask):
            self.changes.show_ask(application, ask)
            node = claim.node.node_id if isinstance(entry, journal.ClaimMade) else ""
            self.responses.add_reserved(application, ask, node)

    def _write_events(self, entry: Any) -> None:
        written = events.WRITERS[type(entry)](entry, self._now_ns)
        self.responses.add_events(self.changes.add_events(written))


def _waits(application: Application, ask: Ask) -> bool:
    return any(group.asks.get(ask.key) is ask for group in application.groups.values())
