"""Builds the site of the pages that stage_docs.py laid out, into build/site.

Zensical may miss a page that is there, and then warns of every link to it or panics (its issue
641), or hang (113): so a build that fails is tried again. A link that is wrong fails every time.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_TRIES = 5
MOST_SECONDS = 120  # of a try, which takes three: some hang
_ZENSICAL = Path(sys.executable).parent / "zensical"


def main() -> int:
    """Print what the last try printed; return its exit code."""
    if stage := subprocess.call([sys.executable, "scripts/stage_docs.py"], cwd=ROOT):
        return stage
    for turn in range(1, MOST_TRIES + 1):
        status, said = _build()
        if status == 0:
            break
        print(f"zensical failed, try {turn} of {MOST_TRIES}", file=sys.stderr)
    print(said, end="")
    return status


def _build() -> tuple[int, str]:
    """Return the exit code of one try, and what it printed."""
    command = [_ZENSICAL, "build", "--clean", "--strict", "-f", "mkdocs.yml"]
    try:
        built = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        return 1, f"zensical had not ended after {MOST_SECONDS} s\n"
    return built.returncode, built.stdout + built.stderr


if __name__ == "__main__":
    sys.exit(main())
