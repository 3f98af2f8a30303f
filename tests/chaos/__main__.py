"""Chaos on real parts: two of every service, a broker, and everything that breaks.

    make chaos
    make chaos ARGS="--seed 7 --minutes 10"
    make chaos ARGS="--only 'disk full' --only 'link mute'"

Every fault comes in turn, in an order of the seed, while clients submit, delete and repeat; after
each it is measured how long it takes until an application that is submitted then runs. At the end
all is left quiet, and the oracle asks what must hold. What comes when is the machine's: a seed
repeats the faults, not the moments. Exit status 1 where something did not hold; the logs' folder is
kept then, and the seed is printed.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.broker import own_broker
from tests.chaos import oracle
from tests.chaos.cluster import INSTANCES, Cluster
from tests.chaos.faults import FAULTS, Broken, small_disk
from tests.chaos.links import Links
from tests.chaos.load import Load
from tests.chaos.recovery import RECOVERED_SECONDS, recovered

WARM_SECONDS = 3.0  # a quorum queue younger than one does not survive the broker's kill


@dataclass
class Seen:
    """What one kind of fault came to."""

    times: int = 0
    longest: float = 0.0


@dataclass
class Run:
    """One run of a seed."""

    seed: int
    broken: Broken
    load: Load
    seen: dict[str, Seen] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    probes: int = 0

    def break_things(self, seconds: float, names: list[str]) -> None:
        """Do every fault in turn until the time is over, and once at least."""
        chance = random.Random(f"faults/{self.seed}")
        start = time.monotonic()
        for at, name in enumerate(_decks(chance, names)):
            if at >= len(names) and time.monotonic() - start > seconds:
                return
            what = FAULTS[name](chance, self.broken)
            took = self._recovered()
            seen = self.seen.setdefault(name, Seen())
            seen.times += 1
            seen.longest = max(seen.longest, took or RECOVERED_SECONDS)
            if took is None:
                self.wrong.append(f"{name} ({what}): nothing runs {RECOVERED_SECONDS:g} s after")
            print(
                f"{time.monotonic() - start:7.1f} s  {name}: {what}; at work after {took or 0:.1f} s"
            )
            self.wrong += oracle.sums_are_exact(self.broken.cluster)
            time.sleep(chance.uniform(0, 3))

    def _recovered(self) -> float | None:
        """Return how long it takes from now until what is submitted now has run, at every API."""
        self.probes += 1
        return recovered(self.broken.cluster, self.load, f"probe-{self.probes}")

    def judge(self, folder: Path) -> None:
        """Let all become quiet, and ask what must hold."""
        cluster = self.broken.cluster
        self.load.finish()
        print(f"quiet: {len(self.load.applications)} applications; clients were told "
              f"{dict(sorted(self.load.answers.items()))}")  # fmt: skip
        self.wrong += oracle.at_rest(cluster, self.load, folder / "state")
        for after, failover in self.broken.failovers.items():
            self.wrong += [
                f"failover after {after}: {took:.1f} s, bound {failover.bound:g} s"
                for took in failover.late
            ]

    def show(self) -> None:
        """Print the table of faults, and what is wrong."""
        table = Table("fault", "count", "longest to recover, s")
        for name, seen in sorted(self.seen.items()):
            table.add_row(name, str(seen.times), f"{seen.longest:.1f}")
        for after, failover in self.broken.failovers.items():
            if failover.seconds:
                worst = f"{max(failover.seconds):.1f} of {failover.bound:g}"
                table.add_row(f"failover after {after}", str(len(failover.seconds)), worst)
        Console(width=80).print(table)
        for item in self.wrong:
            print(f"WRONG: {item}")


def _decks(chance: random.Random, names: list[str]) -> Iterator[str]:
    while True:
        yield from chance.sample(names, len(names))


def run(seed: int, minutes: float, rate: float, names: list[str], folder: Path) -> list[str]:
    """Run a seed; return what did not hold."""
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "state"))
        broker = stack.enter_context(own_broker())
        links = stack.enter_context(Links())
        cluster = Cluster(links, broker.url, folder, f"chaos-{seed}")
        stack.callback(cluster.stop)
        cluster.start_all()
        this = Run(seed, Broken(cluster, broker, disk), Load(cluster, seed, rate))
        this.load.start()
        time.sleep(WARM_SECONDS)
        try:
            this.break_things(minutes * 60, names)
        finally:
            this.load.finish()
        this.judge(folder)
        this.show()
        return this.wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make chaos", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=1.0, help="applications a second")
    parser.add_argument("--only", action="append", choices=list(FAULTS), help="this fault")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # and clean up
    sys.stdout.reconfigure(line_buffering=True)
    folder = Path(tempfile.mkdtemp(prefix=f"muster-chaos-{options.seed}-"))
    print(f"seed {options.seed}, {len(INSTANCES)} processes, logs in {folder}")
    only = "".join(f" --only '{name}'" for name in options.only or ())
    again = f'make chaos ARGS="--seed {options.seed} --minutes {options.minutes:g}{only}"'
    try:
        wrong = run(
            options.seed, options.minutes, options.rate, options.only or list(FAULTS), folder
        )
    except BaseException:
        print(f"did not come to its end; logs in {folder}; again: {again}")
        raise
    if wrong:
        sys.exit(f"{len(wrong)} things did not hold; logs in {folder}; again: {again}")
    shutil.rmtree(folder)
    print("everything held")


if __name__ == "__main__":
    main()
