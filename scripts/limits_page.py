"""The page of limits: every constant of the code that is one, its value, and what happens there.

A limit is a number at the top of a module whose name starts with MAX, MOST or LONGEST, or one that
words/limits.yaml names all the same. What it bounds and what happens at it stands there, or in its
own line, as ``# what is bounded; what happens``. One with neither fails the check, as does a line
whose limit has gone.
"""

import ast
import importlib
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
WORDS = Path(__file__).parent / "words" / "limits.yaml"
_LIMIT = re.compile(r"_?(MAX|MOST|LONGEST)_\w+")
_COMMENT = re.compile(r"  # (?!noqa)(.+)$")
_PER_SECOND = {"ns": 1_000_000_000, "ms": 1_000, "seconds": 1}
_NO_LIMITS = (  # of the same names
    "services.shim_adapter.translation.bounds._MOST_OF_A_CHARACTER",
    "services.shim_adapter.translation.bounds._MOST_OF_A_NAME",
    "services.cli.waterfall._MOST_PAUSE",
    "shared.runtime.settings._MAX_SECONDS",
)
_INTRODUCTION = """\
# Limits

Generated from the code by `scripts/make_docs.py`. Everything that can grow has a limit; the table
says what happens there. None of them is a setting: values to tune are in
[settings](settings.md). A refusal is reported where it was submitted, with the number found
and the number allowed.
"""


def limits_page() -> tuple[str, list[str]]:
    """Return the page as Markdown, and what does not hold."""
    limits = _limits()
    sections = {
        title: [(key, what, then) for key, (what, then) in rows.items()]
        for title, rows in yaml.safe_load(WORDS.read_text()).items()
    }
    named = {full for rows in sections.values() for row in rows for full in _named(row[0], limits)}
    wrong: list[str] = []
    for full, comment in limits.items():
        if full in named or full in _NO_LIMITS or not _LIMIT.fullmatch(full.rpartition(".")[2]):
            continue
        what, _, then = comment.partition("; ")
        if then:
            sections.setdefault("Others", []).append((full, what, then))
        else:
            wrong.append(
                f"{full}: say what it bounds and what happens there, in its line "
                "(# what; what happens) or in scripts/words/limits.yaml"
            )
    parts = [_INTRODUCTION]
    for title, rows in sections.items():
        parts += [
            f"## {title}",
            "| what is limited | limit | beyond it | in the code |",
            "|---" * 4 + "|",
        ]
        for key, what, then in rows:
            found = _named(key, limits)
            if len(found) == 1:
                parts.append(_row(found[0], key.partition(" ")[2], what, then))
            else:
                wrong.append(f"scripts/words/limits.yaml: {key} names {found or 'nothing'}")
        parts.append("")
    return "\n".join(parts), wrong


def _limits() -> dict[str, str]:
    """Return the comment behind every constant at the top of a module, by module and name."""
    found: dict[str, str] = {}
    for folder in ("services", "shared", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            lines = text.splitlines()
            for node in ast.parse(text).body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    name = node.targets[0].id
                    if name.isupper() and not isinstance(node.value, ast.Tuple | ast.JoinedStr):
                        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                        comment = _COMMENT.search(lines[node.lineno - 1])
                        found[f"{module}.{name}"] = comment[1] if comment else ""
    return found


def _named(key: str, limits: dict[str, str]) -> list[str]:
    """Return the constants whose module and name end as the key says."""
    end = key.partition(" ")[0]
    return [full for full in limits if f".{full}".endswith(f".{end}")]


def _row(full: str, unit: str, what: str, then: str) -> str:
    module, _, name = full.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    path = f"{module.replace('.', '/')}.py"
    return f"| {what} | {_text(value, unit)} | {then} | `{path}` (`{name}`) |"


def _text(value: float | str, unit: str) -> str:
    """Return a value as people write it; a text is RabbitMQ's own."""
    if isinstance(value, str):
        return f"`{value}`"
    if unit == "bytes":
        for size, name in ((2**20, "MiB"), (2**10, "KiB")):
            if value % size == 0:
                return f"{value // size} {name}"
        return f"{value:,} bytes"
    if unit in _PER_SECOND:
        seconds = value / _PER_SECOND[unit]
        for size, name in ((365 * 86_400, "years"), (86_400, "days"), (60, "min")):
            if seconds >= 2 * size and seconds % size == 0:
                return f"{seconds // size:,.0f} {name}"
        return f"{seconds:g} s"
    return f"{value:,}"
