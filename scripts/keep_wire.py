"""Keep how the messages of a released version look on the wire, as tests/wire/previous.json.

    scripts/keep_wire.py v0.1.0

To be run when a version is released, with its tag: from then on every change has to read what it
sends. The version's own code writes the examples, in a worktree that goes again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from shared.messages.routes import SENDERS  # noqa: E402

KEPT = ROOT / "tests" / "wire" / "previous.json"
NAMES = {"<instance>": "replica-1", "<partition>": "default"}


def inboxes() -> dict[str, str]:
    """Return for every kind an inbox that it goes to."""
    found: dict[str, str] = {}
    for inbox, kinds in reversed(SENDERS.items()):
        service, _, name = inbox.partition(".")
        found.update(dict.fromkeys(kinds, f"{service}.{NAMES.get(name, name)}"))
    return found


def git(*words: str) -> str:
    """Return what git says."""
    done = subprocess.run(("git", *words), cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("revision", help="the released version, a tag or a commit")
    revision = git("rev-parse", f"{parser.parse_args().revision}^{{commit}}")
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git("worktree", "add", "--detach", str(tree), revision)
        try:
            written = subprocess.run(
                (sys.executable, str(ROOT / "scripts" / "wire_examples.py")),
                env={**os.environ, "PYTHONPATH": str(tree)},
                input=json.dumps(inboxes()),
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
        finally:
            git("worktree", "remove", "--force", str(tree))
    examples = json.loads(written.stdout)
    lines = ",\n".join(json.dumps(item, sort_keys=True) for item in examples)
    KEPT.write_text(f'{{"revision": "{revision}", "examples": [\n{lines}\n]}}\n')
    print(f"{len(examples)} examples of {revision[:12]} in {KEPT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
