"""The plugin of docs/plugins.md, installed as a distribution of its own, and what cannot be used."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from services.cli.exits import Exit
from services.cli.up import UpOptions, run_up
from services.core.plugins import find_plugin, installed
from services.core.scheduler.model.hooks import PluginError
from services.core.service import make_machine
from shared.messages.protocol import SyncBegin
from tests.builders import envelope
from tools.scenario.command import run_files

DOCS = Path(__file__).parents[3] / "docs" / "plugins.md"
SCENARIO = """
name: nodes with GPUs are kept for pods that ask for one
%s
nodes:
  - {name: a-gpu, capacity: {cpu: "8", pods: 20, nvidia.com/gpu: 2}}
  - {name: b-slow, capacity: {cpu: "8", pods: 20}}
  - {name: c-fast, capacity: {cpu: "2", pods: 20}, labels: {disk: fast}}
steps:
  - submit: {app: app, queue: root.default}
  - pods: {app: app, name: first, requests: {cpu: "1"}}
  - expect: {pods: {first: {state: Running, node: %s}}}
  - restart: core
  - pods: {app: app, name: second, requests: {cpu: "1"}}
  - pods: {app: app, name: gpu, requests: {cpu: "1", nvidia.com/gpu: 1}}
  - expect: {pods: {second: {state: Running, node: %s}, gpu: {node: a-gpu}}}
  - pods: {app: app, name: many, count: 8, requests: {cpu: "1"}}
  - pods: {app: app, name: last, requests: {cpu: "1"}}
  - expect: {pods: {last: {%s}}}
  - expect: {invariants: true}
"""


def install(folder: Path, name: str, code: str, *, entry: str = "", dist: str = "") -> None:
    """Install a module as a distribution with an entry point, as pip leaves it behind."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{dist or name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist or name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[muster.plugins]\n{entry or name} = {name}:register\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a folder in which distributions are found."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(
            sys.modules[name].__file__
        ):
            del sys.modules[name]
    importlib.invalidate_caches()


def example() -> str:
    """Return the module of the page."""
    found = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def run(tmp_path: Path, text: str) -> int:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return run_files([file], "memory", 1.0, as_json=False)


def test_the_example_is_twenty_lines_and_says_how_it_is_installed():
    assert len(example().splitlines()) <= 20
    text = DOCS.read_text()
    assert '[project.entry-points."muster.plugins"]\ngpu-nodes = "gpu_nodes:register"' in text


def test_the_example_decides_in_the_live_core_and_after_a_restart(site, capsys):
    install(site, "gpu_nodes", example(), entry="gpu-nodes")
    assert installed() == ["gpu-nodes"]
    named = SCENARIO % (
        "scheduler: {plugins: [gpu-nodes]}", "c-fast", "c-fast", "state: Pending",
    )  # fmt: skip
    assert run(site, named) == 0, capsys.readouterr().out
    not_named = SCENARIO % ("", "a-gpu", "b-slow", "state: Running")
    assert run(site, not_named) == 0, "installed and not named it does nothing: " + (
        capsys.readouterr().out
    )


def test_a_scenario_with_a_plugin_that_cannot_be_used_is_malformed(site, capsys):
    install(site, "broken", "import nowhere_to_be_found\n")
    for name, why in (
        ("absent", "plugin absent: it is not installed; there are: broken"),
        ("broken", "cannot be imported: ModuleNotFoundError: No module named 'nowhere"),
    ):
        assert run(site, SCENARIO % (f"scheduler: {{plugins: [{name}]}}", "", "", "")) == 2
        out = capsys.readouterr()
        assert "scheduler.plugins: " in out.out + out.err
        assert why in out.out + out.err


def test_muster_up_does_not_start_with_a_plugin_that_is_not_there(capsys):
    options = UpOptions(once=True, nodes="1", port=0, plugins="absent")
    assert run_up(options) == Exit.CONFIGURATION
    assert "muster up: plugin absent: it is not installed" in capsys.readouterr().err


def test_one_name_of_two_packages_is_nobodys(site):
    install(site, "one", "def register(policy): ...\n", entry="same")
    install(site, "two", "def register(policy): ...\n", entry="same")
    with pytest.raises(PluginError, match=r"more than once: one:register of one 1\.0, two:"):
        find_plugin("same")


def test_what_is_no_function_is_no_plugin(site):
    install(site, "odd", "register = 7\n")
    with pytest.raises(PluginError, match=r"plugin odd: odd:register of odd 1\.0 is no function"):
        find_plugin("odd")


def test_the_core_service_finds_what_is_installed(site):
    install(site, "watcher", "def register(policy): policy.capacity.append(lambda *_: 'no')\n")
    machine = make_machine("core-1")
    machine.handle(envelope(SyncBegin("", (("plugins", "watcher, absent"),)), epoch=1), 1)
    hooks = machine.partition.hooks
    assert [hook.plugin for hook in hooks.capacity] == ["watcher", "absent"]
    (warning,) = hooks.warnings()
    assert warning.startswith("plugin absent: it is not installed")
