"""What README, ARCHITECTURE, CONTRIBUTING and the pages in docs name exists: paths, names, targets.

Rule 1: a path is from the root, or the end of one path that exists. In a table row or list item
        names in brackets after a Python file, as in `queues.py` (`order_of`), are written in it.
Rule 2: ARCHITECTURE names every room of the scheduler, and none that is not there.
Rule 3: `make x` is a target of the Makefile. What is drawn or typed in the first three is within 80
        columns. Decisions (docs/adr) name what there was, and are not checked.
Rule 4: a link leads to a file, and with ``#`` to one of its headings.
Rule 5: the glossary has every room of the scheduler and of the API, and its `Terms` are classes.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
NARROW = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
SCHEDULER = ROOT / "services/core/scheduler"
API = ROOT / "services/api"
PAGES = (
    *NARROW,
    "deploy/README.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
    *(f"docs/rules/{path.name}" for path in sorted((ROOT / "docs/rules").glob("*.md"))),
)
FOLDERS = ("services", "shared", "tools", "tests", "scripts", "docs", "deploy")
COLUMNS = 80
_QUOTED = re.compile(r"`([^`\s]+)`")
_LINKED = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_OF_A_DOMAIN = re.compile(r"[\w-]+(\.[\w-]+)*\.(io|ai|org|com|sh|scheduler)/.+")  # a label, a kind
_NAMED = re.compile(r"`([\w/]+\.py)` \(((?:`\w+`(?:, | and )?)+)\)")
_BLOCK = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
_PATH = re.compile(r"(?:[\w.-]+/)+[\w.-]*|[\w-]+\.(?:py|md|yaml|toml)")
_TARGET = re.compile(r"\bmake ([a-z][a-z0-9-]*)\b")
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_TERM = re.compile(r"^\| [^|]*?`(\w+)`[^|]*\|", re.MULTILINE)
_ROOM = re.compile(r"^ {4}(\w+)/ ", re.MULTILINE)
MADE_BY_USERS = {
    "job.yaml",
    "si/node-partition",
    "deviceclass/NAME",
    "queues.yaml",
    "gpu_nodes.py",
    ".github/workflows/policy.yaml",
}


def main() -> int:
    """Print what is named and is not there; return 1 if there is any."""
    there_are = {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder, *(ROOT / folder).rglob("*"))
    } | {path.name for path in ROOT.iterdir()}
    found = [line for page in PAGES for line in _check(page, there_are)]
    drawn = set(_ROOM.findall((ROOT / "ARCHITECTURE.md").read_text()))
    rooms = {path.parent.name for path in SCHEDULER.glob("*/__init__.py")}
    found += [f"ARCHITECTURE.md: draws other rooms: {name}" for name in sorted(drawn ^ rooms)]
    found += _check_glossary(rooms)
    for line in found:
        print(line)
    return 1 if found else 0


def _check_glossary(rooms: set[str]) -> Iterator[str]:
    text = (ROOT / "docs/glossary.md").read_text()
    named = set(_QUOTED.findall(text))
    rooms = rooms | {path.parent.name for path in API.glob("*/__init__.py")}
    yield from (f"docs/glossary.md: no row for the room {room}" for room in sorted(rooms - named))
    code = [
        path.read_text() for name in ("services", "shared") for path in (ROOT / name).rglob("*.py")
    ]
    classes = {name for source in code for name in _CLASS.findall(source)}
    terms = {name for name in _TERM.findall(text) if name[0].isupper()}
    yield from (f"docs/glossary.md: there is no class {name}" for name in sorted(terms - classes))


def _check(page: str, there_are: set[str]) -> list[str]:
    text = (ROOT / page).read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    prose = _BLOCK.sub("", text)
    paths = {
        quoted
        for quoted in _QUOTED.findall(prose)
        if _PATH.fullmatch(quoted) and not _OF_A_DOMAIN.fullmatch(quoted)
    }
    found = [
        f"{page}: there is no {path}"
        for path in sorted(paths - MADE_BY_USERS)
        if not _ends_of(path, there_are)
    ]
    found += _check_links(page, prose)
    for path, names in _NAMED.findall(prose):
        files = [ROOT / end for end in _ends_of(path, there_are)]
        for name in _QUOTED.findall(names):
            if not any(re.search(rf"\b{name}\b", file.read_text()) for file in files):
                found.append(f"{page}: {path} has no {name}")
    quoted = [*_BLOCK.findall(text), *re.findall(r"`(make [^`]+)`", prose)]
    typed = {target for part in quoted for target in _TARGET.findall(part)}
    found += [f"{page}: there is no target {target}" for target in sorted(typed - targets)]
    if page in NARROW:
        found += [
            f"{page}: wider than {COLUMNS}: {line}"
            for block in _BLOCK.findall(text)
            for line in block.splitlines()
            if len(line) > COLUMNS
        ]
    return found


def _check_links(page: str, prose: str) -> Iterator[str]:
    for path, heading in _LINKED.findall(prose):
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists():
            yield f"{page}: there is no {path}"
        elif heading and heading not in headings(target.read_text()):
            yield f"{page}: {path or 'it'} has no heading {heading}"


def headings(text: str) -> set[str]:
    """Return the names by which a page's headings are linked."""
    titles = _HEADING.findall(_BLOCK.sub("", text))
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def _ends_of(path: str, there_are: set[str]) -> list[str]:
    """Return the paths that are a path, or end with it."""
    path = path.rstrip("/")
    return [other for other in there_are if other == path or other.endswith(f"/{path}")]


if __name__ == "__main__":
    sys.exit(main())
