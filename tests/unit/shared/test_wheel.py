"""The wheel, built and installed beside somebody else's packages of the same names."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[3]
# Built once, by one worker.
pytestmark = [pytest.mark.xdist_group("wheel"), pytest.mark.long]
SCENARIO = min((ROOT / "tests/conformance/scenarios").glob("*gang*.yaml"))
THEIRS = "raise ImportError('these packages are somebody else\\'s')\n"
IMPORT_ALL = """
import importlib, pkgutil, sys, muster
for item in pkgutil.walk_packages(muster.__path__, "muster."):
    if not item.name.endswith("__main__"):
        importlib.import_module(item.name)
mine = {name for name in sys.modules if name.partition(".")[0] in ("services", "shared", "tools")}
assert not mine, mine
assert len([name for name in sys.modules if name.startswith("muster.")]) > 200
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps",
        "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))  # fmt: skip
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with the wheel; what it depends on is found where it is already."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    run(sys.executable, "-m", "pip", f"--python={python}", "install", "--quiet", "--no-index",
        "--no-deps", str(wheel))  # fmt: skip
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for name in ("services", "shared", "tools"):
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(THEIRS)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def command(name, *words):
        return run(str(folder / "bin" / name), *words, cwd=folder, env=environment)

    return SimpleNamespace(run=command)


def test_the_wheel_has_one_package_and_all_that_lies_beside_the_code(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"muster"}
    for package in ("services", "shared", "tools"):
        there = {
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / package).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert {f"muster/{name}" for name in there} <= set(names)


def test_every_module_of_it_imports_nothing_of_somebody_elses(installed):
    installed.run("python", "-c", IMPORT_ALL)


def test_its_commands_run(installed):
    assert installed.run("muster", "version", "-o", "name").strip() == version("muster")
    assert installed.run("muster", "--version") == f"muster {version('muster')}\n"
    assert "Usage: muster up" in installed.run("muster", "up", "--help")
    assert "Usage: kubectl muster" in installed.run("kubectl-muster", "--help")
    assert installed.run("muster", "scenario", "run", str(SCENARIO)).startswith("ok ")


def test_muster_up_runs_outside_of_the_checkout(installed):
    said = installed.run("muster", "up", "--once", "--nodes", "3", "--port", "0")
    assert "Muster is up: 3 nodes" in said
    assert "There is nothing to do" in said


def test_a_source_distribution_is_built_without_our_backend(tmp_path):
    sys.path.insert(0, str(ROOT / "scripts"))
    import wheel_backend

    with tarfile.open(tmp_path / wheel_backend.build_sdist(str(tmp_path))) as file:
        file.extractall(tmp_path, filter="data")
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert "wheel_backend" not in (folder / "pyproject.toml").read_text()
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps",
        "--no-build-isolation", "--wheel-dir", str(tmp_path), str(folder))  # fmt: skip
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as file:
        assert "muster/services/api/page/index.html" in file.namelist()
        assert "muster/tools/replay/page/report.css" in file.namelist()


def test_a_pyproject_that_the_backend_does_not_know_is_refused(tmp_path, monkeypatch):
    sys.path.insert(0, str(ROOT / "scripts"))
    import wheel_backend

    monkeypatch.setattr(wheel_backend, "_INSTEAD", (("no such line", ""),))
    with pytest.raises(ValueError, match=r"pyproject\.toml should have this once.*no such line"):
        wheel_backend.stage(tmp_path)
