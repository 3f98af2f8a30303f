"""`make audit` ends well only when every package of the lock was audited; pip-audit is scripted."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.table import each_row

ROOT = Path(__file__).parents[3]
LOCK = (ROOT / "requirements.lock").read_text()
NAMES = sorted(set(re.findall(r"^([A-Za-z0-9._-]+)==", LOCK, re.MULTILINE)))


def audited(tmp_path, said, status=0):
    """Return how `make audit` ended, and its words, where pip-audit says this."""
    (tmp_path / "said").write_text(said if isinstance(said, str) else json.dumps(said))
    fake = tmp_path / "pip-audit"
    fake.write_text(f"#!/bin/sh\ncat {tmp_path}/said\necho was asked >&2\nexit {status}\n")
    fake.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        [shutil.which("make"), "-s", "audit"],
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def package(name, *flaws):
    vulns = [{"id": flaw, "fix_versions": ["9.9"]} for flaw in flaws]
    return {"name": name, "version": "1", "vulns": vulns}


def answer(*dependencies):
    return {"dependencies": list(dependencies), "fixes": []}


def test_an_audit_of_everything_that_finds_nothing_ends_well(tmp_path):
    status, said = audited(tmp_path, answer(*map(package, NAMES)))
    assert (status, said) == (0, f"{len(NAMES)} packages audited, nothing found\n")


@each_row(
    ("said", "words"),
    [
        (answer(), "nothing could be audited"),
        (
            answer(*({"name": name, "skip_reason": "not on the index"} for name in NAMES)),
            "nothing could be audited",
        ),
        ("", "nothing could be audited: was asked"),
        (
            answer(*map(package, NAMES[1:]), {"name": NAMES[0], "skip_reason": "not on the index"}),
            f"{NAMES[0]} was not audited: not on the index",
        ),
        (answer(*map(package, NAMES[:-1])), f"{NAMES[-1]} was not audited"),
        (
            answer(package(NAMES[0], "CVE-1"), *map(package, NAMES[1:])),
            f"{NAMES[0]} 1: CVE-1, mended in 9.9",
        ),
    ],
)
def test_an_audit_that_is_not_whole_or_finds_something_fails(tmp_path, said, words):
    status, printed = audited(tmp_path, said)
    assert status != 0
    assert words in printed
