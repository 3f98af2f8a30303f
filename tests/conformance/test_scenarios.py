"""Every scenario file, in memory and on RabbitMQ. The file's name is the id of its case."""

from pathlib import Path

import pytest

from services.cli.scenario.command import run_scenario
from services.cli.scenario.runner import check_config
from services.cli.scenario.schema import load_scenario

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.yaml"))
SPEED = 100_000.0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_a_scenario_holds_in_memory(file):
    scenario, config = load_scenario(file)
    check_config(file, scenario, config)
    result = await run_scenario(file, scenario, config, "memory", SPEED)
    assert result.failures == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_a_scenario_holds_on_rabbitmq(file, broker_url):
    scenario, config = load_scenario(file)
    result = await run_scenario(file, scenario, config, broker_url, SPEED)
    assert result.failures == []
