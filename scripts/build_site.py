"""Builds the site of the pages that stage_docs.py laid out, into build/site.

Its search finds a section that has every word of a question. So words that a question has and an
answer has not ("why is my") are no words to it, and decisions and the changelog are not searched.

Zensical may miss a page that is there, and then warns of every link to it or panics (its issue
641), or hang (113): so a build that fails is tried again. A link that is wrong fails every time.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_TRIES = 5
MOST_SECONDS = 120  # of a try, which takes three: some hang
_SEARCH = ROOT / "build" / "site" / "search.json"
_NOT_SEARCHED = ("docs/adr/", "CHANGELOG")  # why something is as it is, and what it was before
_NO_WORDS = (
    "a about again am an and any are be been between by can cannot could did do does doing "
    "for from get had has have how i if in into is it its just may me might must my of on one "
    "or our shall should so that the then there these they this those to too us use was we "
    "were what when where which who why will with without would you your"
)
_ZENSICAL = Path(sys.executable).parent / "zensical"


def main() -> int:
    """Print what the last try printed; return its exit code."""
    if stage := subprocess.call([sys.executable, "scripts/stage_docs.py"], cwd=ROOT):
        return stage
    for turn in range(1, MOST_TRIES + 1):
        status, said = _build()
        if status == 0:
            _prepare_search()
            break
        print(f"zensical failed, try {turn} of {MOST_TRIES}", file=sys.stderr)
    print(said, end="")
    return status


def _prepare_search() -> None:
    """Let questions of users be found: see above."""
    index = json.loads(_SEARCH.read_text())
    index["items"] = [
        item for item in index["items"] if not item["location"].startswith(_NOT_SEARCHED)
    ]
    either = (f"[{word[0]}{word[0].upper()}]{word[1:]}" for word in _NO_WORDS.split())
    index["config"]["separator"] += rf"|(?<!\w)(?:{'|'.join(either)})(?!\w)"
    _SEARCH.write_text(json.dumps(index))


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
