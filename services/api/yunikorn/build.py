"""What is running: the version, when it was installed, and of which commit, if the image has it.

Source: docs/rules/rest.md#fields, rmBuildInformation. The names are the Kubernetes shim's own;
core, interface and shim are one tree here, so they are of one commit.
"""

import os
import platform
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_COMMIT = "MUSTER_COMMIT"
UNKNOWN = "unknown"


@lru_cache(maxsize=1)
def build_information() -> dict[str, str]:
    """Return the build information shown by YuniKorn's web client, without the rmId."""
    commit = os.environ.get(_COMMIT) or UNKNOWN
    installed = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    return {
        "arch": platform.machine(),
        "buildDate": installed.strftime("%Y-%m-%dT%H:%M:%S+0000"),
        "buildVersion": f"muster-{muster_version()}",
        "coreSHA": commit,
        "goVersion": f"none ({platform.python_implementation()} {platform.python_version()})",
        "isPluginVersion": "false",
        "shimSHA": commit,
        "siSHA": commit,
    }


def muster_version() -> str:
    """Return the installed version."""
    try:
        return version("muster")
    except PackageNotFoundError:
        return UNKNOWN
