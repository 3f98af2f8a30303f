"""The page of the command line, from the parser itself: every command with its help, in order."""

from typing import Any

import typer

from services.cli.exits import EXITS
from tools.main import app

_WIDTH = 80
_INTRODUCTION = """\
# The command line

Generated from the parser by `scripts/make_docs.py`.

`muster` connects to the API at `--url` or `MUSTER_API_URL`, by default on this machine. Output fits
the terminal: columns are dropped if there is no room, but reasons are always shown in full. In a
pipe, and with `--wide`, every row is one line with all columns.

```
muster apps --watch                            # until Ctrl-C; in a pipe, changes
muster apps --filter state=accepted --sort -pending
muster pods --filter 'why~GANG' -o name        # one name per line, for xargs
muster nodes -o json | jq                      # or -o yaml
muster completion bash > ~/.local/share/bash-completion/completions/muster
```

A `--filter` is the name of a column in any case, with dashes for blanks (`held-back-by`), then `=`,
`!=`, `~` (contains), or `<`, `<=`, `>`, `>=` with a number such as `8`, `0.5` or `10Gi`. Without an
operator it is a text to find anywhere in the row. Rows must match all filters. `--sort` takes a
column; a `-` before it sorts the largest first.

## Exit statuses
| status | meaning |
|---|---|
"""


def cli_page() -> str:
    """Return the page as Markdown."""
    root = typer.main.get_command(app)
    statuses = "\n".join(f"| {int(status)} | {what} |" for status, what in EXITS.items())
    parts = [f"{_INTRODUCTION}{statuses}\n", "## Commands\n"]
    for path, command in _commands(root, "muster"):
        parts += [f"### {path}\n", f"```\n{_help(command, path)}\n```\n"]
    return "\n".join(parts)


def _commands(group: Any, path: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, command in group.commands.items():
        own = f"{path} {name}"
        found += _commands(command, own) if hasattr(command, "commands") else [(own, command)]
    return found


def _help(command: Any, path: str) -> str:
    context = typer.Context(
        command, info_name=path, terminal_width=_WIDTH, max_content_width=_WIDTH,
        help_option_names=["--help", "-h"],
    )  # fmt: skip
    lines: list[str] = command.get_help(context).splitlines()
    return "\n".join(line.rstrip() for line in lines)
