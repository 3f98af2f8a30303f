"""How the tests are run (pyproject.toml): what hangs or dies is named, a group has one worker."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[3]
ENDS = {
    "hangs": "import threading\n\ndef test_it():\n    threading.Event().wait()\n",
    "dies": "import os\n\ndef test_it():\n    os._exit(1)\n",
}


@pytest.fixture
def run(tmp_path):
    """Run a file of tests in a folder of its own, as ``make test`` does."""

    def run_it(text, *options):
        (tmp_path / "test_one.py").write_text(text)
        command = [
            *(sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path),
            *("--dist", "loadgroup", *options, tmp_path),
        ]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
        )

    return run_it


@pytest.mark.long
@pytest.mark.parametrize("how", ENDS)
def test_what_never_ends_is_named(how, run):
    ended = run(
        ENDS[how] + "\ndef test_after():\n    pass\n", "-n", "1", "-o", "faulthandler_timeout=1"
    )
    assert ended.returncode != 0
    assert "crashed while running 'test_one.py::test_it'" in ended.stdout
    assert ("in test_it" in ended.stderr) == (how == "hangs")  # where it was


@pytest.mark.long
def test_a_group_has_one_worker(run):
    """Or two would build the site in one folder, and empty one API server under each other's hands."""
    ended = run(
        "import pytest\n\n@pytest.mark.xdist_group('one')\n"
        "@pytest.mark.parametrize('turn', range(20))\ndef test_it(turn):\n    pass\n",
        *("-n", "2", "-v"),
    )
    assert ended.returncode == 0
    assert set(re.findall(r"\[gw\d\]", ended.stdout)) in ({"[gw0]"}, {"[gw1]"})


def test_each_test_has_a_limit(pytestconfig):
    assert float(pytestconfig.getini("faulthandler_timeout")) > 0
