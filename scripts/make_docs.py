"""Writes what is generated in docs/: asyncapi.yaml from the kinds, the state diagram, cli.md.

``--check`` writes nothing and fails when a file is stale.
"""

import sys
from pathlib import Path

import yaml
from cli_page import cli_page

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
    files = {
        DOCS / "asyncapi.yaml": yaml.safe_dump(asyncapi_document(), sort_keys=False, width=100),
        DOCS / "states.md": state_diagram(),
        DOCS / "cli.md": cli_page(),
    }
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"docs/{path.name} is stale: run .venv/bin/python scripts/make_docs.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(files[path])
        print(f"wrote docs/{path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
