"""Three brokers that are one, and what befalls them: how long nobody decides, and what is lost.

    make chaos-cluster
    make chaos-cluster ARGS="--pods 50 --seed 7"
    make chaos-cluster ARGS="--only 'leader killed'"

Three nodes of RabbitMQ with deploy/rabbitmq.cluster.conf, two of every service, each behind a link of its own
to each node. Under load every fault comes once, in an order of the seed. When a pod was bound stands
in the resource manager's own file: the longest time without a bind, from a fault's start until what
was submitted after its end has run, is its gap. An alarm's own length is no fault of ours; after it
a bind comes within ALARM_SECONDS. At the end all is left quiet, and the oracle of ``make chaos`` asks
what must hold. Bounds are of a quiet machine; how slow this one was stands beside. Exit status 1 where something did not hold; the logs' folder is kept then.
"""

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.broker import BrokerCluster, PrivateBroker
from tests.chaos import oracle
from tests.chaos.cluster import Cluster
from tests.chaos.faults import slowness
from tests.chaos.links import Links
from tests.chaos.load import Load
from tests.chaos.recovery import recovered
from tests.integration.processes import world_in

GAP_SECONDS = 10.0
ALARM_SECONDS = 2.0
OUTAGE_SECONDS, STOP_SECONDS, LENGTH_OF_ALARM = 20.0, 25.0, 15.0
WARM_SECONDS = 10.0
CONTROL_SECONDS = 180.0  # a rabbitmqctl takes its time to start
NODES = 100
CLIENTS = 64  # those whose API waits for a broker must not be all
PODS_OF_ONE = 3.3  # of an application of the load, on average
_FACTOR = 5


@dataclass
class Window:
    """A fault from its start until all was well again, in nanoseconds of the wall clock."""

    name: str
    start_ns: int
    end_ns: int = 0
    alarm_ns: int = 0  # the end of an alarm
    took: float | None = None  # from the fault's end, None: what was submitted then did not run
    slower: float = 1.0

    def gap(self, bound: list[int]) -> float:
        """Return the longest time without a bind; of an alarm, what comes after its end."""
        within = sorted(at for at in bound if self.start_ns < at < self.end_ns)
        start = self.alarm_ns or self.start_ns
        moments = [start, *(at for at in within if at > start), self.end_ns]
        return max(later - at for at, later in zip(moments, moments[1:], strict=False)) / 1e9

    def first(self, bound: list[int]) -> float:
        """Return how long after an alarm's end a pod was bound."""
        after = [at for at in bound if self.alarm_ns < at]
        return (min(after) - self.alarm_ns) / 1e9 if after else float("inf")


@dataclass
class Run:
    """A run of a seed on a cluster of brokers."""

    brokers: BrokerCluster
    cluster: Cluster
    load: Load
    chance: random.Random
    windows: list[Window] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def break_things(self, names: list[str]) -> None:
        """Do every fault once."""
        for name in self.chance.sample(names, len(names)):
            self.brokers.wait_until_up()
            window = Window(name, time.time_ns())
            paces = [slowness()]
            said = FAULTS[name](self, window)
            paces.append(slowness())
            window.took = recovered(self.cluster, self.load, f"probe-{len(self.windows)}")
            window.end_ns = time.time_ns()
            window.slower = statistics.fmean([*paces, slowness()])
            self.windows.append(window)
            print(f"{name}: {said}; at work after {window.took or -1:.1f} s, "
                  f"{window.slower:.1f} times as slow as alone")  # fmt: skip

    def leader(self) -> PrivateBroker:
        """Return the node that leads the core's inbox, the first one where none says so."""
        queue = f"{self.cluster.environment['MUSTER_BUS_PREFIX']}.core.default"
        return self.brokers.leader_of(queue) or self.brokers.nodes[0]

    def others(self, node: PrivateBroker) -> list[PrivateBroker]:
        return [one for one in self.brokers.nodes if one is not node]

    def judge(self, folder: Path) -> None:
        """Let all become quiet, and ask what must hold."""
        self.load.finish()
        told = dict(sorted(self.load.answers.items()))
        print(f"quiet: {len(self.load.applications)} applications; clients were told {told}")
        self.wrong += oracle.at_rest(self.cluster, self.load, folder / "state")
        pods = world_in(folder / "state").pods.values()
        bound = sorted(pod.bound_ns for pod in pods if pod.bound_ns)
        table = Table(
            "fault", "no decision for, s", "first after an alarm, s", "to run again, s", "slow"
        )
        for window in self.windows:
            gap, first = window.gap(bound), ""
            if window.took is None:
                self.wrong.append(f"{window.name}: what was submitted after it has not run")
            if gap > GAP_SECONDS:
                self.wrong.append(f"{window.name}: {gap:.1f} s without a decision")
            if window.alarm_ns:
                first = f"{window.first(bound):.1f}"
                if window.first(bound) > ALARM_SECONDS:
                    self.wrong.append(f"{window.name}: its end was noticed after {first} s")
            table.add_row(
                window.name, f"{gap:.1f}", first, f"{window.took or -1:.1f}", f"{window.slower:.1f}"
            )
        seconds = (bound[-1] - bound[0]) / 1e9 if bound else 0.0
        print(f"{len(bound)} pods bound in {seconds:.0f} s; load {os.getloadavg()[1]:.1f}")
        Console(width=100).print(table)
        for item in self.wrong:
            print(f"WRONG: {item}")


def killed(run: Run, _: Window) -> str:
    """kill -9 of the node that leads the core's inbox; it is back after OUTAGE_SECONDS."""
    node = run.leader()
    node.kill()
    time.sleep(OUTAGE_SECONDS)
    node.start()
    return node.node


def stopped(run: Run, _: Window) -> str:
    """SIGSTOP of the node that leads the core's inbox, and SIGCONT after STOP_SECONDS."""
    node = run.leader()
    node.send(signal.SIGSTOP)
    try:
        time.sleep(STOP_SECONDS)
    finally:
        node.send(signal.SIGCONT)
    return node.node


def cut_off(run: Run, _: Window) -> str:
    """The leader's node hears nobody for OUTAGE_SECONDS, neither nodes nor services.

    Nodes that do not take each other's cookie do not connect; what is open between them is closed.
    """
    node, links = run.leader(), run.cluster.links
    begun = Path(tempfile.mkdtemp(prefix="muster-cut-")) / "begun"
    says = (
        f'ok = file:write_file("{begun}", <<>>), {_cookies(run.others(node), "wrong")}, '
        f"timer:sleep({OUTAGE_SECONDS * 1000:.0f}), "
        f"{_cookies(run.others(node), 'erlang:get_cookie()')}."
    )
    with ThreadPoolExecutor(1) as pool:
        cutting = pool.submit(node.control, "eval", says, seconds=CONTROL_SECONDS)
        while not begun.exists() and not cutting.done():  # rabbitmqctl takes seconds to start
            time.sleep(0.01)
        links.stall_all_to(node.port)
        try:
            cutting.result()
        finally:
            links.mend_all_to(node.port)
    shutil.rmtree(begun.parent)
    return node.node


def _cookies(others: list[PrivateBroker], cookie: str) -> str:
    """Return how a node takes others to have a cookie, and closes what is open to them."""
    return ", ".join(
        f"erlang:set_cookie('{one.node}', {cookie}), erlang:disconnect_node('{one.node}')"
        for one in others
    )


def restarted(run: Run, _: Window) -> str:
    """Each node ends in order and starts again, one after the other."""
    for node in run.brokers.nodes:
        node.stop()
        node.start()
    return "each"


def out_of_memory(run: Run, window: Window) -> str:
    """The memory alarm of one node: none of the three takes anything from publishers."""
    low = 'vm_memory_monitor:set_vm_memory_high_watermark({absolute, "1MB"})'
    return _alarm(run, window, low, "vm_memory_monitor:set_vm_memory_high_watermark(0.4)")


def out_of_disk(run: Run, window: Window) -> str:
    """The disk alarm of one node: none of the three takes anything from publishers."""
    low = "rabbit_disk_monitor:set_disk_free_limit({mem_relative, 1000.0})"
    return _alarm(run, window, low, "rabbit_disk_monitor:set_disk_free_limit(50000000)")


def _alarm(run: Run, window: Window, on: str, off: str) -> str:
    """Raise an alarm; the node itself says when it let it end."""
    node = run.chance.choice(run.brokers.nodes)
    says = (
        f"{on}, timer:sleep({LENGTH_OF_ALARM * 1000:.0f}), "
        f"At = os:system_time(nanosecond), {off}, At."
    )
    try:
        said = node.control("eval", says, seconds=CONTROL_SECONDS)
    except subprocess.CalledProcessError:  # it had just begun to restart, and raised no alarm
        run.brokers.wait_until_up()
        said = node.control("eval", says, seconds=CONTROL_SECONDS)
    window.alarm_ns = int(said.split()[-1])
    return node.node


FAULTS: dict[str, Callable[[Run, Window], str]] = {
    "leader killed": killed,
    "leader stopped": stopped,
    "leader cut off": cut_off,
    "all restarted in turn": restarted,
    "out of memory": out_of_memory,
    "out of disk": out_of_disk,
}


def run(seed: int, pods: float, names: list[str], folder: Path) -> list[str]:
    """Run a seed; return what did not hold."""
    with ExitStack() as stack:
        brokers = stack.enter_context(BrokerCluster())
        links = stack.enter_context(Links())
        more = {
            "MUSTER_SIMULATED_NODES": str(NODES),
            "MUSTER_POD_RUN_SECONDS": "1",
            # when a pod was bound, and that it ran, is read from the cluster's file at the end
            "MUSTER_SIMULATED_ENDED_PODS": "100000",
        }
        cluster = Cluster(links, brokers.url, folder, f"chaos-{seed}", **more)
        stack.callback(cluster.stop)
        cluster.start_all()
        rate = pods / (PODS_OF_ONE * _FACTOR)
        load = Load(cluster, seed, rate, factor=_FACTOR, clients=CLIENTS)
        this = Run(brokers, cluster, load, random.Random(f"brokers/{seed}"))
        load.start()
        try:
            time.sleep(WARM_SECONDS)
            this.break_things(names)
        finally:
            load.finish()
        this.judge(folder)
        return this.wrong


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make chaos-cluster",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--pods", type=float, default=200.0, help="pods a second")
    parser.add_argument("--only", action="append", choices=list(FAULTS), help="this fault")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # and clean up
    sys.stdout.reconfigure(line_buffering=True)
    folder = Path(tempfile.mkdtemp(prefix=f"muster-chaos-cluster-{options.seed}-"))
    print(f"seed {options.seed}, {options.pods:g} pods a second, logs in {folder}")
    wrong = run(options.seed, options.pods, options.only or list(FAULTS), folder)
    if wrong:
        sys.exit(f"{len(wrong)} things did not hold; logs in {folder}; seed {options.seed}")
    shutil.rmtree(folder)
    print("everything held")


if __name__ == "__main__":
    main()
