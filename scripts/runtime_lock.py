"""Print the part of requirements.lock that runs Muster: no test tool belongs in an image.

    python scripts/runtime_lock.py > runtime.lock

What the lock pins is one set; each entry says who asked for it (``# via``). What is reached from
the project's own dependencies, its extra ``otel`` and what builds it is printed as it stands there.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = ("otel",)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def runtime_lock(lock: str, project: dict[str, object]) -> str:
    """Return the entries that the project's dependencies reach, in their order."""
    texts = [text for text in re.split(r"\n(?=\S)", lock) if _NAME.match(text)]
    asked_by: dict[str, set[str]] = {}  # a name may have an entry for each of several Pythons
    for text in texts:
        asked_by.setdefault(_name(text), set()).update(_asked_by(text))
    wanted = {_name(item) for item in _asked(project)}
    missing = wanted - asked_by.keys()
    if missing:
        raise SystemExit(f"requirements.lock lacks {', '.join(sorted(missing))}: make it again")
    while more := {name for name, by in asked_by.items() if name not in wanted and by & wanted}:
        wanted |= more
    return "\n".join(text.rstrip() for text in texts if _name(text) in wanted) + "\n"


def _asked(project: dict[str, object]) -> list[str]:
    section: dict[str, object] = project["project"]  # type: ignore[assignment]
    extras: dict[str, list[str]] = section["optional-dependencies"]  # type: ignore[assignment]
    dependencies: list[str] = section["dependencies"]  # type: ignore[assignment]
    build: dict[str, list[str]] = project["build-system"]  # type: ignore[assignment]
    extra = [item for name in EXTRAS for item in extras[name]]
    return [*dependencies, *extra, *build["requires"]]


def _asked_by(entry: str) -> set[str]:
    _, _, via = entry.partition("# via")
    return {_name(line.strip("# ")) for line in via.splitlines() if line.strip("# ")}


def _name(text: str) -> str:
    found = _NAME.match(text)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    print(runtime_lock((ROOT / "requirements.lock").read_text(), project), end="")
