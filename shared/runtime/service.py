"""Runs a service as a process: settings, logs, bus, host, health, and an orderly end.

Exit status: 0 after SIGTERM or SIGINT, 78 for an invalid environment, 1 when it ended unexpectedly
or did not end when asked to: the service manager should restart it.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from typing import Any, Protocol

import structlog

from shared.bus.base import Bus
from shared.bus.factory import UnknownBusError, bus_factory
from shared.messages.envelope import Address
from shared.model.units import milliseconds
from shared.runtime.clock import SystemClock
from shared.runtime.health import serve_health
from shared.runtime.host import Host, HostOptions
from shared.runtime.logs import set_up_logs
from shared.runtime.machine import Machine
from shared.runtime.members import Members
from shared.runtime.settings import (
    Settings,
    SettingsError,
    bus_url,
    load_settings,
    without_credentials,
)
from shared.runtime.spacing import MAX_PAUSE_NS
from shared.runtime.telemetry import flush_spans

EXIT_CONFIGURATION = 78
EXIT_ENDED = 1
# Thresholds of the three generations. Collections of them take
# 5 ms, 30 ms, and with 50,000 pods 100 to 200 ms of CPU (ADR 43).
_GC_THRESHOLDS = (5_000, 3, 300)
_OPTIONS = HostOptions(
    hold_tap_ns=milliseconds(100),  # users read a trace seconds later
    max_pause_ns=MAX_PAUSE_NS,
)
# A cancellation of a waiting task may be lost (``stop_if_cancelled``), so it is
# repeated. A task that has not ended then is abandoned, as in a crash. There
# are at most three waits of STOP_TURNS, 21 s in all: below the 30 s that Kubernetes waits.
STOP_TURNS = 7
_STOP_TURN_SECONDS = 1.0
log = structlog.get_logger("muster.service")

MakeMachine = Callable[[str], Machine]
Beside = Callable[[Host, Settings], Awaitable[None]]


def spare_the_collector() -> None:
    """Reduce the garbage collector's work: rare full collections, frozen start-up objects.

    A collection stops the process for about a microsecond per object. Objects of the state live
    long and have few cycles; short-lived ones belong to messages and are found in the young
    generation.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


class Runner(Protocol):
    """What a process runs: a host, or a host for each partition."""

    @property
    def is_ready(self) -> bool:
        """Whether it can answer requests."""

    async def run(self) -> None:
        """Run until cancelled."""

    async def close(self) -> None:
        """Close the connections."""


def run_service(
    service: str,
    prepare: Callable[[Settings, str], tuple[Address, Callable[[], Machine]]],
    beside: Beside | None = None,
    is_ready: Callable[[Host], bool] = attrgetter("is_ready"),
) -> None:
    """Run a service until it is stopped. ``beside`` runs concurrently with the host (such as HTTP).

    ``is_ready`` determines the readiness that the health port reports.
    """

    def make(settings: Settings, instance: str, make_bus: Callable[[], Bus]) -> Host:
        inbox, machine = prepare(settings, instance)
        return Host(inbox, machine, make_bus(), SystemClock(), instance=instance, options=_OPTIONS)

    _run_process(service, make, beside, is_ready)


def run_members(service: str, make_machine: Callable[[str, str], Machine]) -> None:
    """Run a process of a service with one machine per partition, until it is stopped.

    ``make_machine`` makes a machine from the instance's name and the partition's.
    """

    def make(_: Settings, instance: str, make_bus: Callable[[], Bus]) -> Members:
        return Members(
            service, lambda partition: make_machine(instance, partition), make_bus(),
            SystemClock(), instance=instance, options=_OPTIONS,
        )  # fmt: skip

    _run_process(service, make, None)


def _run_process(
    service: str,
    make: Callable[[Settings, str, Callable[[], Bus]], Runner],
    beside: Callable[[Any, Settings], Awaitable[None]] | None,
    is_ready: Callable[[Any], bool] = attrgetter("is_ready"),
) -> None:
    try:
        settings = load_settings()
        set_up_logs(settings.log_format, settings.log_level)
        instance = settings.instance or f"{service}-{socket.gethostname()}-{os.getpid()}"
        make_bus = bus_factory(
            bus_url(settings),
            prefix=settings.bus_prefix,
            name=instance,
            is_given=settings.bus_topology == "given",
            heartbeat_seconds=settings.bus_heartbeat_seconds,
        )
        runner = make(settings, instance, make_bus)
    except (SettingsError, UnknownBusError, OSError) as error:
        print(f"muster {service}: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(EXIT_CONFIGURATION)
    spare_the_collector()
    log.info("starting", service=service, bus=without_credentials(settings.bus_url))
    if not asyncio.run(_run(runner, settings, beside, is_ready)):
        sys.exit(EXIT_ENDED)


async def _run(
    runner: Runner,
    settings: Settings,
    beside: Callable[[Any, Settings], Awaitable[None]] | None,
    is_ready: Callable[[Any], bool],
) -> bool:
    """Run until stopped, or until a part ends; return whether it was stopped."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[Any]] = {asyncio.create_task(runner.run(), name="host")}
    if beside is not None:
        tasks.add(asyncio.create_task(_beside(beside, runner, settings), name="beside"))
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server = None
    if settings.health_port:
        server = await serve_health(
            settings.health_host, settings.health_port, lambda: is_ready(runner)
        )
    stop = asyncio.create_task(stopping.wait())
    done, _ = await asyncio.wait(tasks | {stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if server is not None:
        server.close()
    closing = asyncio.create_task(runner.close(), name="closing")
    await asyncio.wait({closing}, timeout=STOP_TURNS * _STOP_TURN_SECONDS)
    await asyncio.to_thread(flush_spans)
    await _stop({*tasks, closing})
    left = await _stop(asyncio.all_tasks() - {asyncio.current_task()})
    if left:
        log.error("left running: it did not end when asked to", tasks=list(map(_at, left)))
        logging.shutdown()
        os._exit(EXIT_ENDED)
    for task in tasks:
        if not task.cancelled():
            task.result()
    log.info("stopped", clean=stop in done)
    return stop in done


async def _beside(
    beside: Callable[[Any, Settings], Awaitable[None]], runner: Runner, settings: Settings
) -> None:
    await beside(runner, settings)


async def _stop(tasks: Iterable[asyncio.Task[Any] | None]) -> list[asyncio.Task[Any]]:
    """Cancel tasks up to STOP_TURNS times; return those that have not ended, by name."""
    waiting = {task for task in tasks if task is not None and not task.done()}
    for _ in range(STOP_TURNS):
        if not waiting:
            break
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=_STOP_TURN_SECONDS)
    return sorted(waiting, key=asyncio.Task.get_name)


def _at(task: asyncio.Task[Any]) -> str:
    """Return a task's name and its stack of awaits, the innermost last."""
    places: list[str] = []
    inner: Any = task.get_coro()
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        inner = inner.cr_await
    return f"{task.get_name()} at {', '.join(places)}"
