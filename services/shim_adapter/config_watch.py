"""Watches queues.yaml: proposes changes to the core, and reports the results.

Every instance checks its file. A version found twice in a row, so that it is not read while being
written, is sent to the shim adapter's inbox, and the active instance proposes it. An unchanged file
has no effect; neither has a refused one, which is reported in the log, the metric, the API and an
event.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog
from prometheus_client import Counter, Gauge

from services.shim_adapter.machine import ShimMachine
from services.shim_adapter.queue_file import queue_file
from shared.bus.errors import BusClosedError, BusUnavailableError
from shared.messages.interface import UpdateConfiguration
from shared.queueconfig import QueueConfigError
from shared.runtime.host import Host

LOOK_SECONDS = 1.0
MAX_FILE_BYTES = 3 * 1024 * 1024
_REFUSED = Gauge(
    "muster_queue_configuration_refused",
    "1 while the queue configuration that was proposed last is refused",
)
_RESULTS = Counter("muster_queue_configurations", "Queue configurations by result", ["result"])
log = structlog.get_logger("muster.shim_adapter")


async def watch(host_of: Callable[[], Host | None], path: Path | None) -> None:
    """Propose the file whenever it has changed, and report the result of every proposal.

    ``host_of`` returns the current host, or None while a new one is being started.
    """
    proposed: str | None = None
    before: str | None = None
    told = (0, 0)
    while True:
        host = host_of()
        if path is not None and host is not None:
            text = await asyncio.to_thread(_read, path)
            is_settled = text is not None and text == before
            if is_settled and text != proposed and await _propose(host, text or ""):
                proposed = text
            before = text
        if host is not None and isinstance(host.machine, ShimMachine):
            told = _report(host.machine, told)
        await asyncio.sleep(LOOK_SECONDS)


def _read(path: Path) -> str | None:
    """Return the file's text; None if it cannot be read now, as in the middle of a change."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            log.error("the queues file is too large", file=str(path), most=MAX_FILE_BYTES)
            return None
        return queue_file(path.read_text()).text or None
    except (OSError, UnicodeDecodeError, QueueConfigError) as error:
        log.warning("the queues file cannot be read", file=str(path), error=str(error))
        return None


async def _propose(host: Host, text: str) -> bool:
    try:
        await host.send_to_inbox(UpdateConfiguration(text))
    except (BusUnavailableError, BusClosedError):
        return False  # retried at the next check
    return True


def _report(machine: ShimMachine, told: tuple[int, int]) -> tuple[int, int]:
    """Log and count the results of proposals; a new machine starts counting from 0."""
    proposals = machine.proposals
    now = (proposals.accepted, proposals.refused)
    accepted, refused = (max(0, new - old) for new, old in zip(now, told, strict=True))
    _RESULTS.labels("accepted").inc(accepted)
    _RESULTS.labels("refused").inc(refused)
    if accepted or refused:
        _REFUSED.set(1 if proposals.error else 0)
    if refused and proposals.error:
        log.error("the queue configuration was refused; nothing has changed", error=proposals.error)
    elif accepted:
        log.info("the queue configuration is in use now")
    return now
