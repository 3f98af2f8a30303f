"""What the lock can say of itself without a network: what it finds, and that it finds nothing here."""

import importlib.util
import tomllib
from pathlib import Path

import yaml

from tests.table import each_row

ROOT = Path(__file__).parents[3]
SPEC = importlib.util.spec_from_file_location("check_lock", ROOT / "scripts/check_lock.py")
check_lock = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_lock)
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ADVISORIES = yaml.safe_load(check_lock.ADVISORIES.read_text())


def wrong(lock=LOCK, installed=None, advisories=ADVISORIES):
    return check_lock.wrong_in(lock, PROJECT, installed or {}, advisories)


def test_the_lock_holds():
    assert wrong() == []


@each_row(
    ("old", "new", "said"),
    [
        ("\nhttpx==", "\nhttpx>=", "httpx>="),
        ("\nhttpx==0.28", "\nhttpx==0.27", "pyproject.toml asks for >=0.28"),
        ("\nh11==0.16.0", "\nh11==0.14.0", "CVE-2025-43859, mended in 0.16.0"),
        ("\nhttpx==0.28", "\nhttpx @ https://host/httpx==0.28", "no address"),
        ("\nhttpx==", "\n--index-url https://host/simple\nhttpx==", "--index-url"),
    ],
)
def test_what_does_not_hold_is_said_with_the_package(old, new, said):
    assert old in LOCK
    assert any(said in line for line in wrong(LOCK.replace(old, new)))


def test_an_entry_without_hashes_is_one_too_few():
    at = LOCK.index("\nhttpx==")
    end = LOCK.index("\n", LOCK.index("# via", at))
    bare = LOCK[:at] + "\nhttpx==0.28.1" + LOCK[end:]
    assert any(line.startswith("httpx==0.28.1:") for line in wrong(bare))


def test_what_is_installed_and_not_locked_so_is_said():
    assert wrong(installed={"httpx": "0.28.0"}) == [
        "httpx 0.28.0 is installed and another is locked: make setup"
    ]
    assert wrong(installed={"something-else": "1.0"}) == []


def test_every_advisory_names_a_package_that_is_locked():
    names = [f"\n{item['package']}==" for item in ADVISORIES]
    assert [name for name in names if name not in LOCK] == []
