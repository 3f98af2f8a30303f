"""`make demo` on a bare machine: what is missing is installed in a line each, and no more than runs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = """#!/bin/sh
# A Python without its venv module, until a package brings it; of pip it only says what it installs.
case "$*" in
    *ensurepip*) [ -e "$HOME/venv-package" ] ;;
    *%d.%d*) echo 3.13 ;;
    *"-m venv"*) [ -e "$HOME/venv-package" ] && mkdir -p .venv/bin && cp "$0" .venv/bin/python ||
        { echo "ensurepip is not available"; exit 1; } ;;
    *runtime_lock.py*) printf 'one==1\\ntwo==2\\n' ;;
    *"-m pip install"*) echo "$*" >>"$HOME/installed" ;;
esac
"""
APT = '#!/bin/sh\necho "apt: $*" >>"$HOME/apt"\ntouch "$HOME/venv-package"\necho noise\n'
ID = "#!/bin/sh\necho %s\n"


@pytest.fixture
def bare(tmp_path):
    """Return what sets up a checkout as root, or not, and what it prints; `HOME` is its folder."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")
    (tmp_path / "requirements.lock").write_text("one==1\ntwo==2\nthree==3\n    # via two\n")
    programs = tmp_path / "bin"
    programs.mkdir()

    def run(*arguments: str, user: int = 0) -> subprocess.CompletedProcess[str]:
        for name, text in (("python3", PYTHON), ("apt-get", APT), ("id", ID % user)):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        return subprocess.run(
            [tmp_path / "scripts" / "setup.sh", *arguments],
            env={"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def test_a_bare_machine_is_told_in_a_line_each_what_is_installed_and_why(bare, tmp_path):
    result = bare("runtime")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "setup: installing python3.13-venv (Python's own tool for the environment .venv)",
        "setup: installing what Muster runs with into .venv: 2 packages, a minute or two",
    ]
    first, own = (tmp_path / "installed").read_text().splitlines()
    assert "--require-hashes -r " in first
    assert "requirements.lock" not in first  # a part of it
    assert own.endswith("--no-deps --no-build-isolation -e .")


def test_what_is_there_is_not_installed_again(bare, tmp_path):
    bare("runtime")
    (tmp_path / "apt").unlink()
    result = bare()
    what = "what Muster runs with and is tested with"
    assert result.stdout.splitlines() == [
        f"setup: installing {what} into .venv: 3 packages, a minute or two"
    ]
    assert not (tmp_path / "apt").exists()
    assert "-r requirements.lock" in (tmp_path / "installed").read_text()


def test_a_user_without_root_reads_what_to_install(bare):
    result = bare("runtime", user=1000)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "setup: the package python3.13-venv is needed (Python's own tool for the environment "
        ".venv); as root: apt-get install python3.13-venv\n"
    )


def test_the_demo_needs_the_runtime_only():
    makefile = (ROOT / "Makefile").read_text()
    assert "\ndemo: .runtime-stamp " in makefile
    assert "\ntest: setup " in makefile
