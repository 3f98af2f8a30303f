"""Builds the site of the pages that stage_docs.py laid out, into build/site.

Zensical may miss a page that is there, and then warns of every link to it or panics (its issue
641): so a build that fails is tried again. A link that is wrong fails every time.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_TRIES = 5
_ZENSICAL = Path(sys.executable).parent / "zensical"


def main() -> int:
    """Print what the last try printed; return its exit code."""
    if stage := subprocess.call([sys.executable, "scripts/stage_docs.py"], cwd=ROOT):
        return stage
    command = [_ZENSICAL, "build", "--clean", "--strict", "-f", "mkdocs.yml"]
    for turn in range(1, MOST_TRIES + 1):
        built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if built.returncode == 0:
            break
        print(f"zensical failed, try {turn} of {MOST_TRIES}", file=sys.stderr)
    print(built.stdout + built.stderr, end="")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
