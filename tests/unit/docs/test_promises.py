"""What the README shows of the demo, and what the quickstart says, in virtual time."""

import re
import shutil
from pathlib import Path

import yaml

from services.cli.options import CAPACITY
from services.cli.up import DEMO_SETTINGS
from tools.scenario.command import run_files

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
QUICKSTART = (ROOT / "docs" / "quickstart.md").read_text()
DEMO = ROOT / "services" / "cli" / "demo"


def runs(folder, count, steps, **more):
    """Run a scenario on so many nodes of what `muster up` gives each; return its exit status."""
    capacity = dict(pair.split("=") for pair in CAPACITY.split(","))
    nodes = [{"name": "node", "count": count, "capacity": capacity}]
    file = folder / "scenario.yaml"
    file.write_text(yaml.safe_dump({"name": "docs", "nodes": nodes, "steps": steps, **more}))
    return run_files([file], "memory", 0.0, as_json=False)


def shown():
    """Return the state of each application in the picture of the demo."""
    (picture,) = re.findall(r"^```\nAPPLICATION.*?^```", README, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^([a-z-]+) +([A-Z][a-z]+)\b", picture, re.MULTILINE))


def test_the_demo_comes_to_what_the_readme_shows_of_it(tmp_path):
    shutil.copytree(DEMO, tmp_path, dirs_exist_ok=True)
    manifests = sorted(file.name for file in DEMO.glob("[0-9]*.yaml"))
    states = shown()
    assert set(states.values()) == {"Running", "Accepted", "Rejected"}
    assert {"mpi-next": "Accepted", "times-out": "Accepted"}.items() <= states.items()
    rejected = {name: "larger than max queue" for name in states if states[name] == "Rejected"}
    living = {name: {"state": state} for name, state in states.items() if state != "Rejected"}
    for name in living:
        if states[name] == "Accepted":
            living[name] |= {"placeholders": 0, "allocated": {}}  # it holds nothing at all
    steps = [{"manifests": {"file": name}} for name in manifests]
    steps += [{"advance": "1s"}, {"expect": {"applications": living, "rejected": rejected}}]
    more = {"config": "queues.yaml", "scheduler": DEMO_SETTINGS}
    assert runs(tmp_path, 20, steps, **more) == 0


def test_the_quickstart_comes_to_what_it_says(tmp_path):
    job, queues = re.findall(r"^```yaml\n(.*?)^```", QUICKSTART, re.MULTILINE | re.DOTALL)
    (tmp_path / "job.yaml").write_text(job)
    (tmp_path / "second.yaml").write_text(job.replace("train", "second"))  # as its sed does
    (tmp_path / "queues.yaml").write_text(queues)
    research = {"maxResource": {"vcore": 16_000}, "guaranteedResource": {"vcore": 8_000}}
    steps = [
        {"manifests": {"file": "job.yaml"}},
        {"advance": "1s"},
        {"expect": {"applications": {"train": {"state": "Running", "placeholders": 0}},
                    "count": [{"app": "train", "placeholder": False, "state": "Running", "is": 6}]}},
        {"manifests": {"file": "second.yaml"}},
        {"advance": "30s"},
        {"expect": {"applications": {"second": {"state": "Accepted", "placeholders": 0}}}},
        {"advance": "40s"},
        {"expect": {"count": [{"app": "second", "state": "Running", "is": 0},
                              {"app": "train", "state": "Running", "is": 6}]}},
        {"config": "queues.yaml"},
        {"expect": {"queues": {"root.research": research}, "invariants": True}},
    ]  # fmt: skip
    assert runs(tmp_path, 4, steps, scheduler=DEMO_SETTINGS) == 0
