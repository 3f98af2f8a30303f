"""The chart in deploy/helm, and helm itself: what it renders, and what it says."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.kubernetes.tools import NEW, program

CHART = Path(__file__).parents[2] / "deploy/helm"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
BY_HAND = {"_helpers.tpl", "secrets.yaml", "configuration.yaml", "NOTES.txt"}
NAMESPACE = "muster"
HELM_SECONDS = 120
Object = dict[str, Any]


def helm(*words: str, values: Object | None = None, version: str = NEW) -> str:
    """Return what helm prints; what it says when it fails is the error."""
    done = run_helm(*words, values=values, version=version)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_helm(
    *words: str, values: Object | None = None, version: str = NEW
) -> subprocess.CompletedProcess[str]:
    """Run helm with values as its user writes them, and nothing of whoever runs the tests."""
    said = [] if values is None else ["--values=-"]
    with tempfile.TemporaryDirectory() as home:
        homes = {f"HELM_{what}_HOME": home for what in ("CACHE", "CONFIG", "DATA")}
        return subprocess.run(
            [program("helm", version), *words, *said],
            input=yaml.safe_dump(values or {}), capture_output=True, text=True, check=False,
            timeout=HELM_SECONDS, env={"HOME": home, "KUBECONFIG": f"{home}/none", **homes},
        )  # fmt: skip


def rendered(values: Object, namespace: str = NAMESPACE, version: str = NEW) -> list[Object]:
    """Return every object of the chart with these values."""
    words = ("template", "muster", str(CHART), f"--namespace={namespace}")
    text = helm(*words, values=values, version=version)
    return [item for item in yaml.safe_load_all(text) if item]


def made() -> list[Path]:
    """Return the templates that are made of the base."""
    return [path for path in (CHART / "templates").iterdir() if path.name not in BY_HAND]
