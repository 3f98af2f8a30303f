"""Writes what is generated in docs/: the pages of commands, settings, metrics, limits, interfaces.

``--check`` writes nothing and fails when a file is stale. Either way a setting or a limit that
nobody has said a word about is an error.
"""

import sys
from pathlib import Path

import yaml
from cli_page import cli_page
from interface_pages import messages_page, rest_page
from limits_page import limits_page
from metrics_page import metrics_page
from settings_page import settings_page

from shared.bus.asyncapi import asyncapi_document
from shared.model.states import TRANSITIONS

DOCS = Path(__file__).parent.parent / "docs"


def state_diagram() -> str:
    """Return the application's states as a Mermaid diagram, drawn from the table."""
    lines = [f"    {state} --> {after}: {event}" for (state, event), after in TRANSITIONS.items()]
    return "\n".join(
        [
            "# The states of an application",
            "",
            "Generated from `shared/model/states.py` by `scripts/make_docs.py`.",
            "",
            "```mermaid",
            "stateDiagram-v2",
            "    [*] --> New",
            *lines,
            "    Expired --> [*]",
            "```",
            "",
        ]
    )


def main() -> int:
    """Write or check the files."""
    (settings, no_settings), (limits, no_limits) = settings_page(), limits_page()
    metrics, no_metrics = metrics_page()
    silent = [*no_settings, *no_limits, *no_metrics]
    files = {
        DOCS / "settings.md": settings,
        DOCS / "limits.md": limits,
        DOCS / "metrics.md": metrics,
        DOCS / "rest.md": rest_page(),
        DOCS / "messages.md": messages_page(),
        DOCS / "asyncapi.yaml": yaml.safe_dump(asyncapi_document(), sort_keys=False, width=100),
        DOCS / "states.md": state_diagram(),
        DOCS / "cli.md": cli_page(),
    }
    for line in silent:
        print(line)
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"docs/{path.name} is stale: run .venv/bin/python scripts/make_docs.py")
        return 1 if stale or silent else 0
    for path in stale:
        path.write_text(files[path])
        print(f"wrote docs/{path.name}")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
