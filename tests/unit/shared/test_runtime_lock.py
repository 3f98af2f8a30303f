"""What goes into an image: what runs Muster, pinned as everything is, and no test tool."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location("runtime_lock", ROOT / "scripts/runtime_lock.py")
runtime_lock = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(runtime_lock)
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def names(lock):
    return set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))


def test_what_runs_is_there_with_what_it_needs_and_no_test_tool_is():
    found = names(runtime_lock.runtime_lock(LOCK, PROJECT))
    assert {"aio-pika", "aiormq", "numpy", "starlette", "pydantic-core", "setuptools"} <= found
    assert {"opentelemetry-sdk", "protobuf"} <= found
    assert not {"pytest", "mypy", "ruff", "playwright", "schemathesis", "testcontainers"} & found
    assert found < names(LOCK)


def test_entries_keep_their_hashes_and_markers():
    part = runtime_lock.runtime_lock(LOCK, PROJECT)
    entries = re.split(r"\n(?=\S)", part)
    assert all("--hash=sha256:" in entry for entry in entries)
    assert all(entry.rstrip() in LOCK for entry in entries)


def test_a_dependency_that_is_not_locked_is_said():
    project = {**PROJECT, "project": {**PROJECT["project"], "dependencies": ["nosuch>=1"]}}
    with pytest.raises(SystemExit, match="lacks nosuch"):
        runtime_lock.runtime_lock(LOCK, project)
