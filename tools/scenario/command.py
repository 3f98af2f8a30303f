"""`muster scenario run`: files in, one line a scenario out."""

import asyncio
import uuid
from pathlib import Path

from services.cli.answers import as_text
from services.cli.exits import Exit, status_of
from services.cli.options import Output
from services.cli.said import complain
from shared.bus.factory import MEMORY, UnknownBusError, bus_factory
from shared.bus.rabbitmq import RabbitBus
from shared.runtime.logs import set_up_logs
from tools.scenario.runner import Result, ScenarioRunner, check_config
from tools.scenario.schema import Scenario, ScenarioError, load_scenario

EXIT_FAILED = 1


def run_files(files: list[Path], bus: str, speed: float, *, as_json: bool) -> int:
    """Run scenario files and print what came of them; every file is read before the first runs."""
    set_up_logs(level="error")
    loaded: list[tuple[Path, Scenario, str]] = []
    try:
        bus_factory(bus)
        for file in files:
            scenario, config = load_scenario(file)
            check_config(file, config)
            for warning in scenario.scheduler.warnings:
                complain(f"{file}: warning: {warning}")
            loaded.append((file, scenario, config))
    except (ScenarioError, UnknownBusError) as error:
        complain(error)
        return status_of(error, Exit.USAGE)
    results = asyncio.run(_run_all(loaded, bus, speed, as_json=as_json))
    if as_json:
        print(as_text([_as_json(result) for result in results], Output.JSON))
    return 0 if all(result.holds for result in results) else EXIT_FAILED


async def _run_all(
    loaded: list[tuple[Path, Scenario, str]], bus: str, speed: float, *, as_json: bool
) -> list[Result]:
    results: list[Result] = []
    for file, scenario, config in loaded:
        result = await run_scenario(file, scenario, config, bus, speed)
        results.append(result)
        if not as_json:
            _print(result)
    return results


async def run_scenario(
    file: Path, scenario: Scenario, config: str, bus: str, speed: float
) -> Result:
    """Run one scenario; on a broker under names of its own, which are deleted afterwards."""
    prefix = f"muster-scenario-{uuid.uuid4().hex[:12]}"
    make_bus = bus_factory(bus, prefix=prefix, name="scenario")
    runner = ScenarioRunner(
        scenario, config, file, make_bus, speed=None if bus == MEMORY else speed
    )
    try:
        return await runner.run()
    finally:
        if bus != MEMORY:
            sweeper = RabbitBus(bus, prefix=prefix)
            await sweeper.delete_topology()
            await sweeper.close()


def _print(result: Result) -> None:
    if result.holds:
        print(f"ok      {result.path}: {result.name}")
        return
    for failure in result.failures:
        print(f"FAILED  {result.path}: {result.name}: step {failure.step}: {failure.message}")


def _as_json(result: Result) -> dict[str, object]:
    return {
        "file": result.path,
        "name": result.name,
        "ok": result.holds,
        "failures": [
            {"step": failure.step, "message": failure.message} for failure in result.failures
        ],
    }
