"""helm, kubectl and Kubernetes' schemas for the tests: what `make kubernetes-tools` got (ADR 71).

Of programs the newest is PATH's where nothing was got; a test whose tool is nowhere is skipped by name.
"""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "build/kubernetes-tools"
OLD, NEW = "1.28", "1.37"  # of Kubernetes; helm is 3.16 beside the one, 4.3 beside the other


def program(name: str, version: str = NEW) -> str:
    """Return where helm or kubectl of a version is; else the test is skipped."""
    got = FOLDER / version / name
    found = str(got) if got.exists() else shutil.which(name) if version == NEW else None
    if found is None:
        pytest.skip(f"no {name} of {version} here: make kubernetes-tools")
    return found


@cache
def schemas(version: str) -> dict[str, Any]:
    """Return every definition of a version, by its name; else the test is skipped."""
    got = FOLDER / "schemas" / f"{version}.json"
    if not got.exists():
        pytest.skip(f"no schemas of {version} here: make kubernetes-tools")
    definitions: dict[str, Any] = json.loads(got.read_text())["$defs"]
    return definitions
