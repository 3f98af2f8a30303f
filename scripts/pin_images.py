"""Pins the images that deploy/ begins from by digest, or renews it, in the files themselves.

Asks a registry through docker. What was pinned stays what it is until this is run again.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
IMAGES = ("python:3.13-slim", "rabbitmq:4-management")
FILES = (
    "deploy/Dockerfile",
    "deploy/compose.yaml",
    "deploy/compose.cluster.yaml",
    "deploy/kubernetes/rabbitmq.yaml",
    "deploy/helm/values.yaml",
)
_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}")


def main(root: Path = ROOT) -> int:
    """Change the files, all of them or none; return 1 when an image has no digest to be had."""
    pinned: dict[str, str] = {}
    for image in IMAGES:
        digest, problem = _digest_of(image)
        if problem:
            print(f"{image}: {problem}; nothing was changed", file=sys.stderr)
            return 1
        pinned[image] = f"{image}{digest}"
    for name in FILES:
        text = (root / name).read_text()
        for image, whole in pinned.items():
            text = re.sub(rf"\b{re.escape(image)}(?:{_DIGEST.pattern})?", whole, text)
        (root / name).write_text(text)
        print(f"{name}: pinned")
    return 0


def _digest_of(image: str) -> tuple[str, str]:
    """Return ``@sha256:…`` of the image's index at its registry, or what went wrong."""
    pull = ["docker", "pull", "--quiet", image]
    inspect = ["docker", "image", "inspect", "--format", '{{join .RepoDigests " "}}', image]
    try:
        for command in (pull, inspect):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return "", done.stderr.strip() or f"{' '.join(command)} failed"
    except FileNotFoundError:
        return "", "docker is not installed"
    found = _DIGEST.search(done.stdout)
    return (found[0], "") if found else ("", "it has no digest: it came from no registry")


if __name__ == "__main__":
    sys.exit(main())
