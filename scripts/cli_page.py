"""The page of the command line, from the parser itself: every command with its help, in order."""

from typing import Any

import typer

from services.cli.exits import EXITS
from tools.main import app

_WIDTH = 80
_INTRODUCTION = """\
# The command line

Generated from the parser by `scripts/make_docs.py`.

`muster` talks to the API at `--url`, or `MUSTER_API_URL`, or on this machine. What is printed fits
the terminal: columns go where there is no room, and what is held back, and why, is always read
whole. In a pipe, and with `--wide`, every row is one line and nothing is left out.

```
muster apps --watch                            # until Ctrl-C; in a pipe, changes
muster apps --filter state=accepted --sort -pending
muster pods --filter 'why~GANG' -o name        # one name a line, for xargs
muster nodes -o json | jq                      # or -o yaml
muster completion bash > ~/.local/share/bash-completion/completions/muster
```

`--filter` takes a column's name in any case, a dash for a blank (`held-back-by`), and `=`, `!=`,
`~` (contains), `<`, `<=`, `>` or `>=` with a number such as `8`, `0.5` or `10Gi`; without any of
these it is a text that stands somewhere in the row. Several of them hold together. `--sort` takes
a column, and the largest first with a `-` before it.

## Exit statuses
| status | what it says |
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
