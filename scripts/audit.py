"""Ask a database of vulnerabilities for every dependency of the lock: `make audit`.

pip-audit passes over what it cannot ask for, an index that does not answer say, and ends well all
the same. Here that is a failure, and so is an answer about fewer packages than are locked.
Exits 0 when all were audited and nothing was found, 1 otherwise; needs a network, and no package.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"
_COMMAND = ["pip-audit", "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
_ENTRY = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==[^\s;\\]+([^\n]*)", re.MULTILINE)


def wrong_in(lock: str, answer: dict[str, Any]) -> list[str]:
    """Return what was found or could not be audited, a sentence each."""
    found = []
    audited: set[str] = set()
    for item in answer.get("dependencies", []):
        name = _canonical(item["name"])
        if "skip_reason" in item:
            found.append(f"{name} was not audited: {item['skip_reason']}")
            continue
        audited.add(name)
        for flaw in item["vulns"]:
            mended = ", ".join(flaw["fix_versions"]) or "no version"
            found.append(f"{name} {item['version']}: {flaw['id']}, mended in {mended}")
    # One that is for other systems or Pythons only is not asked for here.
    missing = sorted({_canonical(m[1]) for m in _ENTRY.finditer(lock) if ";" not in m[2]} - audited)
    skipped = {line.split()[0] for line in found}
    found += [f"{name} was not audited" for name in missing if name not in skipped]
    if not audited:
        found.append("nothing could be audited")
    return found


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    """Run pip-audit and judge its answer."""
    ran = subprocess.run(
        [*_COMMAND, "--format", "json", "-r", str(LOCK)],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(ran.stdout)
    except ValueError:
        print(f"nothing could be audited: {ran.stderr.strip() or 'no answer'}", file=sys.stderr)
        return 1
    found = wrong_in(LOCK.read_text(), answer)
    for sentence in found:
        print(sentence, file=sys.stderr)
    if not found:
        print(f"{len(answer['dependencies'])} packages audited, nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
