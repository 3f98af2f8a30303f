"""What code and documents say of rules, issues and things: links that hold, words that others have.

Rule 1: a rule is cited as ``docs/rules/queues.md#amounts``: the page and its heading exist.
Rule 2: nothing cites a document outside of the repository ("contract section 6.3").
Rule 3: no document names an issue.
Rule 4: of our old words the worst do not come back: ``WORDS`` has the better ones.
Rule 5: of what people read, words that make them stumble are counted, each with a better one, and
        shown with ``--hints``. They are no error.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from check_docs import headings

ROOT = Path(__file__).parent.parent
FOLDERS = ("services", "shared", "tools", "tests", "scripts", "docs", "deploy")
SUFFIXES = {".py", ".md", ".js", ".yaml", ".yml", ".toml", ".sh"}
_OWN = ("check_words.py", "test_words.py")  # they have what is searched for
_CITED = re.compile(r"(?:docs|\.\.)/rules/([\w-]+\.md)(?:#([\w-]+))?")
_OUTSIDE = re.compile(r"\bcontract,? (?:sections?|kai|\d)|\b[Cc]ontract:? \w+\.md", re.IGNORECASE)
_ISSUE = re.compile(r"\bissues? #?\d", re.IGNORECASE)
WORDS = {  # in the code and the pages: a pattern, and what is said instead
    r"\bwhomever\b": "the noun: pod, user, client",
    r"\bheed(?:s|ed|ing)?\b": "respect",
}
TIDY_WORDS = {  # in the code of TIDY, where they are gone
    r"\banew\b": "again",
    r"\bwhoever\b": "the noun: the caller, the reader, what waits",
    r"\bsomebody\b": "the noun: user, client, pod",
    r"\bstrangers?\b": "the noun: a foreign client, another's page",
}
TIDY = (
    "services/timers", "services/cli", "shared", "services/core/scheduler/report",
    "services/core/scheduler/ordering", "services/core/scheduler/lifecycle",
    "services/core/scheduler/intake", "services/core/scheduler/queues",
    "services/core/scheduler/model",
)  # fmt: skip
HINTS = {  # in pages, help and the live page: a pattern, and what reads better
    r"\b(?:some|no|any)body\b": "the noun: a user, no pod, any client",
    r"\bwhoever\b": "the noun: the caller, the reader",
    r"\bkept for\b": "reserved for",
    r"\bdoes not hold\b": "is invalid",
    r"\banew\b": "again",
    r"\b(?:is|was|are|were|be) told\b": "is reported, is published, reads",
    r"\bput aside\b": "dead-lettered",
}
_READ = ("docs/", "deploy/", "README.md", "services/api/page/", "services/cli/commands/")
_NOT_READ = ("docs/adr/", "docs/rules/", "docs/asyncapi.yaml", "docs/messages.md")
_HINTS = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in HINTS.items()]
_TIDY = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in TIDY_WORDS.items()]
_WORDS = [(re.compile(pattern, re.IGNORECASE), better) for pattern, better in WORDS.items()]


def main() -> int:
    """Print what does not hold; return 1 if there is any."""
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{line}: {what}"
        for path in _files()
        for line, what in check(path)
    ]
    for line in found:
        print(line)
    hints = [hint for path in _files() for hint in hints_of(path)]
    if "--hints" in sys.argv:
        print("\n".join(hints))
    elif hints:
        print(f"{len(hints)} words might read better: scripts/check_words.py --hints")
    return 1 if found else 0


def hints_of(path: Path) -> Iterator[str]:
    """Yield a line for each word of a page, or of the page, that has a better one."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    if not name.startswith(_READ) or name.startswith(_NOT_READ):
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for pattern, better in _HINTS:
            if word := pattern.search(line):
                yield f"{name}:{number}: {word[0]!r} might be {better}"


def _files() -> Iterator[Path]:
    """Yield the texts of the project, but for this one, and for what is over: the changelog."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if (
                path.suffix in SUFFIXES
                and path.name not in _OWN
                and "__pycache__" not in path.parts
            ):
                yield path
    yield from sorted(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md")


def check(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number of each line that does not hold, and what is wrong with it."""
    words = [*_WORDS, *(_TIDY if _is_tidy(path) else ())]
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for page, heading in _CITED.findall(line):
            yield from ((number, what) for what in _cited(page, heading))
        if _OUTSIDE.search(line):
            yield number, "cites what is not in the repository: link to a heading of docs/rules"
        if path.suffix == ".md" and _ISSUE.search(line):
            yield number, "names an issue: say what it was about"
        for pattern, better in words:
            if word := pattern.search(line):
                yield number, f"{word[0]!r}: say {better}"


def _is_tidy(path: Path) -> bool:
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return path.suffix == ".py" and name.startswith(TIDY)


def _cited(page: str, heading: str) -> Iterator[str]:
    path = ROOT / "docs" / "rules" / page
    if not path.exists():
        yield f"there is no docs/rules/{page}"
    elif heading and heading not in headings(path.read_text()):
        yield f"docs/rules/{page} has no heading {heading}"


if __name__ == "__main__":
    sys.exit(main())
