"""What the lock itself can say of the dependencies, without a network: `make check`.

Every entry is one version with hashes, from no address of its own; it is what pyproject.toml
allows; what is installed is what is locked; and no entry is a version that words/advisories.yaml
names. That list is kept by hand: what nobody has put there is not found. `make audit` asks a
database.
"""

import re
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
SBOM_LOCK = "deploy/sbom/requirements.lock"  # of the tool that the image is built with
ADVISORIES = Path(__file__).parent / "words" / "advisories.yaml"
_ENTRY = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)( ;[^\\\n]*)?( \\\n|$)")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}\b")


def wrong_in(
    lock: str, project: dict[str, Any], installed: dict[str, str], advisories: list[dict[str, Any]]
) -> list[str]:
    """Return what does not hold, a sentence each."""
    versions, found = _read(lock)
    return [
        *found,
        *(
            f"{asked.name} {version}: pyproject.toml asks for {asked.specifier}"
            for asked in map(Requirement, _asked(project))
            for version in sorted(versions.get(canonicalize_name(asked.name), ()))
            if version not in asked.specifier
        ),
        *(
            f"{name} {version} is installed and another is locked: make setup"
            for name, version in sorted(installed.items())
            if name in versions and Version(version) not in versions[name]
        ),
        *(
            f"{item['package']} {version}: {item['id']}, mended in {item['below']}"
            for item in advisories
            for version in sorted(versions.get(item["package"], ()))
            if version < Version(str(item["below"]))
        ),
    ]


def _read(lock: str) -> tuple[dict[str, set[Version]], list[str]]:
    """Return the versions of every package (a Python may have its own), and what is no entry."""
    versions: dict[str, set[Version]] = {}
    found: list[str] = []
    for text in re.split(r"\n(?=\S)", lock):
        if text.startswith("#") or not text.strip():
            continue
        entry = _ENTRY.match(text)
        if entry is None or "://" in text or not _HASH.search(text):
            said = text.partition("\n")[0].strip(" \\")
            found.append(f"{said}: expected NAME==VERSION with sha256 hashes, and no address")
        else:
            versions.setdefault(canonicalize_name(entry[1]), set()).add(Version(entry[2]))
    return versions, found


def _asked(project: dict[str, Any]) -> list[str]:
    extras = project["project"]["optional-dependencies"].values()
    return [*project["project"]["dependencies"], *(line for lines in extras for line in lines)]


def main() -> int:
    """Print what does not hold; return how it ends."""
    lock = (ROOT / "requirements.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed = {canonicalize_name(item.name): item.version for item in distributions()}
    wrong = wrong_in(lock, project, installed, yaml.safe_load(ADVISORIES.read_text()))
    for line in wrong:
        print(f"requirements.lock: {line}")
    _, wrong_in_tool = _read((ROOT / SBOM_LOCK).read_text())
    for line in wrong_in_tool:
        print(f"{SBOM_LOCK}: {line}")
    return 1 if wrong or wrong_in_tool else 0


if __name__ == "__main__":
    sys.exit(main())
