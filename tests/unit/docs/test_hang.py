"""A test that hangs, or that takes its process with it, ends the run and is named (pyproject.toml)."""

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


@pytest.mark.parametrize("how", ENDS)
def test_what_never_ends_is_named(how, tmp_path):
    (tmp_path / "test_one.py").write_text(ENDS[how] + "\ndef test_after():\n    pass\n")
    command = [
        *(sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path),
        *("-n", "1", "--dist", "loadgroup", "-o", "faulthandler_timeout=1", tmp_path),
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert run.returncode != 0
    assert "crashed while running 'test_one.py::test_it'" in run.stdout
    assert ("in test_it" in run.stderr) == (how == "hangs")  # where it was


def test_each_test_has_a_limit(pytestconfig):
    assert float(pytestconfig.getini("faulthandler_timeout")) > 0
