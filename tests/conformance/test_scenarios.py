"""Every scenario file in memory, and on RabbitMQ what a broker may make otherwise.

The file's name is the id of its case.
"""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tools.scenario.command import run_scenario
from tools.scenario.runner import check_config
from tools.scenario.schema import load_scenario

FILES = sorted((Path(__file__).parent / "scenarios").glob("*.yaml"))
SPEED = 100_000.0
# A broker makes something otherwise than the bus of one process, which encodes messages too, where
# a service comes back (restart), where the order of what is said by several counts (hold, config),
# and where messages are large (manifests, a hundred and more of something). It follows from the
# steps: a scenario that takes one is on RabbitMQ by itself (docs/adr/0081).
CROSSES = re.compile(
    r"^ *- \{?(restart|hold|config|manifests):|\b(count|minMember): \d{3}", re.MULTILINE
)
KINDS = {"restart", "hold", "config", "manifests"}
ON_A_BROKER = [file for file in FILES if CROSSES.search(file.read_text())]
QUICK = 5  # of those that cross each of these are in make test, the others in make test-long


def _on_a_broker() -> list[object]:
    """Return the scenarios of a broker; those beyond the first of their kind are long."""
    seen: Counter[str] = Counter()
    rows: list[object] = []
    for file in ON_A_BROKER:
        kinds = set(CROSSES.findall(file.read_text()))
        names = {found[0] or found[1] for found in kinds}
        is_quick = any(seen[name] < QUICK for name in names)
        seen.update(names)
        rows.append(file if is_quick else pytest.param(file, marks=pytest.mark.long))
    return rows


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_a_scenario_holds_in_memory(file):
    scenario, config = load_scenario(file)
    check_config(file, config)
    result = await run_scenario(file, scenario, config, "memory", SPEED)
    assert result.failures == []


@pytest.mark.parametrize("file", _on_a_broker(), ids=lambda file: file.stem)
async def test_a_scenario_holds_on_rabbitmq(file, broker_url):
    scenario, config = load_scenario(file)
    result = await run_scenario(file, scenario, config, broker_url, SPEED)
    assert result.failures == []


def test_what_crosses_a_restart_an_order_or_a_size_is_on_a_broker():
    """What the pattern finds in the text is what is meant: the steps, and how many."""
    crossing = []
    for file in FILES:
        document = yaml.load(file.read_text(), yaml.CSafeLoader)
        steps = document["steps"]
        many = [step.get("pods", {}).get("count", 0) for step in steps]
        many += [node.get("count", 0) for node in document.get("nodes", ())]
        groups = [step.get("submit", {}).get("taskGroups", ()) for step in steps]
        many += [group["minMember"] for of_one in groups for group in of_one]
        if any(KINDS & step.keys() for step in steps) or max(many) >= 100:
            crossing.append(file)
    assert crossing == ON_A_BROKER
    assert len(crossing) > 50
