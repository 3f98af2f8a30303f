"""Every service ended in order and started again, one by one, while people submit.

    make test-upgrade                    # from the version whose messages tests/wire keeps
    make test-upgrade ARGS="--from v0.1.0"

Two cores, two timers, two APIs, a shim adapter, each a process; then all is left quiet, and the
oracle of ``make chaos`` asks whether anything was lost, is there twice, or waits. From another
version the services start in its tree and are started again in this one, in the order that
docs/operations.md gives. Exit status 1 where something did not hold.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker import own_broker
from tests.chaos import oracle
from tests.chaos.cluster import INSTANCES, Cluster
from tests.chaos.load import Load
from tests.integration.processes import ROOT

IN_ORDER = ("api", "timers", "core", "shim_adapter")  # who hears before who speaks
RATE = 2.0  # applications a second


def rolled(
    broker_url: str, folder: Path, seed: int, before: Path | None = None, rate: float = RATE
) -> list[str]:
    """Restart everything under load; return what did not hold. ``before``: the tree of before."""
    cluster = Cluster(None, broker_url, folder, f"rolling-{uuid.uuid4().hex[:8]}")
    cluster.trees = dict.fromkeys(INSTANCES, before) if before else {}
    load = Load(cluster, seed, rate)
    try:
        cluster.start_all()
        load.start()
        for service in IN_ORDER:
            for name in [name for name, kind in INSTANCES.items() if kind == service]:
                cluster.trees.pop(name, None)
                start = time.monotonic()
                cluster.renew(name)
                print(f"{name} is ready again after {time.monotonic() - start:.1f} s")
        load.finish()
        submitted = sum(item.is_accepted for item in load.applications)
        print(f"{submitted} applications; clients were told {dict(sorted(load.answers.items()))}")
        wrong = oracle.at_rest(cluster, load, folder / "state")
        return wrong if before is None else [*filter(_is_wrong, wrong)]
    finally:
        load.finish()
        cluster.stop()


def _is_wrong(found: str) -> bool:
    """Return whether something is wrong, and not a new kind that an older service put aside."""
    if not found.startswith("dead letter: ") or "unknown kind" not in found:
        return True
    print(f"put aside by an older service, as it should be: {found[:200]}")
    return False


@contextmanager
def tree_of(revision: str) -> Iterator[Path]:
    """Yield a worktree of another version."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(
            ("git", "worktree", "add", "--quiet", "--detach", tree, revision), cwd=ROOT, check=True
        )
        try:
            yield tree
        finally:
            subprocess.run(("git", "worktree", "remove", "--force", tree), cwd=ROOT, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make test-upgrade",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    kept = json.loads((ROOT / "tests" / "wire" / "previous.json").read_text())["revision"]
    parser.add_argument("--from", dest="revision", default=kept, help="a tag or a commit")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    folder = Path(tempfile.mkdtemp(prefix="muster-upgrade-"))
    print(f"from {options.revision} to what is here; logs in {folder}")
    with tree_of(options.revision) as before, own_broker() as broker:
        wrong = rolled(broker.url, folder, options.seed, before)
    if wrong:
        sys.exit("\n".join([*wrong, f"{len(wrong)} things did not hold; logs in {folder}"]))
    shutil.rmtree(folder)
    print("everything held")


if __name__ == "__main__":
    main()
