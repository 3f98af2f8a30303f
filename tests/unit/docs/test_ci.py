"""deploy/ci: the commands of both examples run as they stand, and fail when a policy does not hold."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
CI = ROOT / "deploy" / "ci"


def commands():
    github = yaml.safe_load((CI / "github-actions.yaml").read_text())
    gitlab = yaml.safe_load((CI / "gitlab-ci.yml").read_text())
    steps = github["jobs"]["policy"]["steps"]
    return {
        "github": steps[-1]["run"],
        "gitlab": "\n".join(gitlab["policy"]["script"]),
    }


def run(script, folder, tmp_path):
    """Run a script as both runners do: each line must hold; `muster` is the one of this tree."""
    muster = tmp_path / "bin" / "muster"
    muster.parent.mkdir()
    muster.write_text(f'#!/bin/sh\nexec {sys.executable} -m tools.main "$@"\n')
    muster.chmod(0o755)
    (tmp_path / "policy").symlink_to(folder)
    path = f"{muster.parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=tmp_path, env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("where", ["github", "gitlab"])
def test_the_example_holds(where, tmp_path):
    result = run(commands()[where], CI / "policy", tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "a-gang-waits-for-its-quota" in result.stdout + result.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("before", "after", "status"),
    [("max: {vcore: 8}", "max: {vcore: 80}", 1), ("max: {vcore: 8}", "max: {vcore: -8}", 1)],
)
def test_a_policy_that_does_not_hold_fails_the_job(before, after, status, tmp_path):
    folder = tmp_path / "changed"
    shutil.copytree(CI / "policy", folder)
    queues = folder / "queues.yaml"
    queues.write_text(queues.read_text().replace(before, after))
    assert run(commands()["gitlab"], folder, tmp_path).returncode == status


def test_both_install_what_the_lock_says_and_no_test_tool(tmp_path):
    for name in ("github-actions.yaml", "gitlab-ci.yml"):
        text = (CI / name).read_text()
        line = re.search(r"python (muster/scripts/\S+) > runtime.lock", text)
        assert "python -m pip install --require-hashes -r runtime.lock" in text
        script = ROOT / line[1].removeprefix("muster/")
        lock = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
        assert "typer==" in lock.stdout
        whole = (ROOT / "requirements.lock").read_text()
        assert lock.stdout.count("numpy==") == whole.count("\nnumpy==")  # one for each Python
        assert "setuptools==" in lock.stdout  # --no-build-isolation builds with it
        assert "zensical==" not in lock.stdout


def test_the_page_shows_the_scenario_that_is_there():
    page = (ROOT / "docs" / "ci.md").read_text()
    shown = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert shown == [(CI / "policy" / "scenarios" / "a-gang-waits-for-its-quota.yaml").read_text()]


def recipes():
    """The Makefile's targets with the lines that each runs."""
    makefile = (ROOT / "Makefile").read_text()
    found = re.finditer(r"^([a-z-]+): [^\n]*\n((?:\t[^\n]*\n)+)", makefile, re.MULTILINE)
    return {target: lines.splitlines() for target, lines in (match.groups() for match in found)}


def needs_a_broker(module):
    """Whether a module of the tests starts a broker, or runs the benches that do."""
    path = ROOT / module.replace(".", "/")
    path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    return module == "tests.benchmarks.smallest" or "tests.broker" in path.read_text()


def test_a_target_that_needs_a_broker_installs_one_before():
    """On a machine where nothing was installed by hand the first such target of `.ci/run` failed."""
    judged = []
    for target, lines in recipes().items():
        modules = re.findall(r"-m (tests\.[a-z_.]+)", "\n".join(lines))
        if any(needs_a_broker(module) for module in modules):
            judged.append(target)
            ensured = [at for at, line in enumerate(lines) if "ensure_broker.sh" in line]
            runs = next(at for at, line in enumerate(lines) if " -m tests." in line)
            assert [at for at in ensured if at < runs], target
    assert {"bench-smallest", "bench-bus", "chaos", "chaos-cluster"} <= set(judged)
