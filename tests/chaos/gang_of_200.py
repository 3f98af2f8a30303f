"""A gang of 200 on Kubernetes, and everything that is killed in its middle, at five moments each.

    make gang-of-200
    make gang-of-200 ARGS="--only core --only node --members 40"
    make gang-of-200 ARGS="--real-api-server"

Muster's services are processes on a RabbitMQ of their own; the API server is the double as a process, or
the real one that the environment names, of which only what runs from KUBEBUILDER_ASSETS can be killed.
A moment is the nth request (``tests/kubernetes/between.py``): all requests and answers wait, the victim
is killed, and they go on. Then the gang must come to run whole; a member that goes with its node is made
again by its Job. Of an API server or etcd it is also said how long it was away: until it answered, and the
run's own watch of pods had caught up. Exit status 1 where something did not hold; the logs' folder is kept.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from services.shim_adapter.backends.kubernetes.client import ApiClient, ApiServerError
from shared.runtime.logs import set_up_logs
from tests.broker import own_broker
from tests.integration.kubernetes.test_backend import QUEUES, member
from tests.integration.processes import Deployment
from tests.kubernetes.between import Between, Trap, until_felt
from tests.kubernetes.control_plane import API_SERVER, ETCD, ControlPlane, control_plane
from tests.kubernetes.controllers import PODS, Controllers, insist
from tests.kubernetes.harness import Kubectl, Kubelets
from tests.kubernetes.real import cordon, empty
from tests.options import OPTION
from tests.patience import PATIENCE_SECONDS, until

SLOTS = 10  # members that one node takes
SPARE_NODES = 3
FELT = 12  # requests that fail before what was killed comes back
VICTIMS = (API_SERVER, ETCD, "core", "shim adapter", "broker", "node")
PROCESSES = {"core": "core", "shim adapter": "shim_adapter"}


def _creates(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/pods")


def _binds_placeholder(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/binding") and "/pods/tg-" in path


def _deletes_placeholder(method: str, path: str) -> bool:
    return method == "DELETE" and "/pods/tg-" in path


def _binds_member(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/binding") and "/pods/tg-" not in path


# By what it is called: the requests that are counted, how many of 100 members' are let through before,
# and whether the next is carried out and only its answer withheld.
MOMENTS: dict[str, tuple[Callable[[str, str], bool], int, bool]] = {
    "placeholders are made": (_creates, 25, True),
    "reserved, none bound": (_binds_placeholder, 0, False),
    "half bound": (_binds_placeholder, 50, True),
    "being replaced": (_deletes_placeholder, 40, True),
    "the last are replaced": (_binds_member, 97, False),
}


@dataclass
class Bench:
    """Everything that a case needs: the cluster, Muster, and the way between them."""

    plane: ControlPlane
    between: Between
    kubectl: Kubectl
    kubelets: Kubelets
    deployment: Deployment
    broker: Any  # None: somebody else's, which is not killed
    members: int
    made: int = 0

    @property
    def node_names(self) -> list[str]:
        count = -(-self.members // SLOTS) + SPARE_NODES
        return [f"n{at:02d}" for at in range(count)]

    async def add_nodes(self) -> None:
        for name in self.node_names:
            if name not in self.kubectl.nodes:
                await self.kubectl.node(name, cpu=str(SLOTS), memory="64Gi", pods="110")

    def can_kill(self, victim: str) -> bool:
        if victim in (API_SERVER, ETCD):
            return victim in self.plane.mortal
        return victim != "broker" or self.broker is not None


@dataclass
class Case:
    """One victim at one moment."""

    bench: Bench
    victim: str
    moment: str
    name: str = ""
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0
    away_seconds: float = 0.0  # of those, until the server and the watches of it were there again
    placeholders: int = 0

    async def run(self) -> None:
        """Have the gang made, kill at the moment, and judge; then have it deleted."""
        bench = self.bench
        bench.made += 1
        self.name = f"gang-{bench.made}"
        await bench.add_nodes()
        names = [f"{self.name}-{at:03d}" for at in range(bench.members)]
        policy = "gangSchedulingStyle=Hard"
        members = {
            name: member(name, self.name, members=bench.members, policy=policy) for name in names
        }
        matches, share, is_done = MOMENTS[self.moment]
        trap = Trap(matches, share * bench.members // 100 + 1, is_done)
        bench.between.set_trap(trap)
        async with Controllers(bench.kubectl, members) as controllers:
            await controllers.submit()
            await until(trap.sprung.is_set, f"{self.moment}: its request")
            await controllers.until_caught_up()
            await self._check_moment()
            start = time.monotonic()
            await self._strike(controllers, trap)
            await self._until_whole(controllers, set(names))
            self.seconds = time.monotonic() - start
            self.wrong += controllers.wrong
            if controllers.most_held < bench.members:
                self.wrong.append(f"no more than {controllers.most_held} places were ever held")
            self.placeholders = controllers.placeholders
            await self._agree()
            self._judge_nodes()
            controllers.is_over = True
            await self._delete()

    def said(self) -> str:
        """Return what is to be said of it in a line."""
        away = f", {self.away_seconds:.1f} s of it away" if self.away_seconds else ""
        return "; ".join(self.wrong) or f"whole after {self.seconds:.1f} s{away}"

    # --- the moment and the blow ----------------------------------------------------------------

    async def _check_moment(self) -> None:
        """See that the moment is what it is called: a case of another one proves nothing."""
        places = await self._places()
        bound = Counter(name in self._own(places) for name, node in places.items() if node)
        size = self.bench.members
        there = len(places) - len(self._own(places))
        holds = {
            "placeholders are made": there < size and not bound,
            "reserved, none bound": there == size and not bound,
            "half bound": 0 < bound[False] < size and not bound[True],
            "being replaced": 0 < there < size and bound[True] <= size // 2,
            "the last are replaced": size // 2 < bound[True] < size,
        }
        if not holds[self.moment]:
            self.wrong.append(f"not the moment: {there} placeholders, bound {dict(bound)}")

    async def _strike(self, controllers: Controllers, trap: Trap) -> None:
        bench, victim = self.bench, self.victim
        if victim in (API_SERVER, ETCD):
            start = time.monotonic()
            await bench.plane.kill(victim)
            bench.between.open(are_answers_lost=victim == API_SERVER)
            await until_felt(bench.between, FELT)
            bench.between.close()
            await bench.plane.restore(victim)
            await controllers.until_caught_up()
            self.away_seconds = time.monotonic() - start
            bench.between.open()
        elif victim == "node":
            await self._delete_node(controllers, trap)
            bench.between.open()
        elif victim == "broker":
            await asyncio.to_thread(bench.broker.kill)
            bench.between.open()
            await asyncio.to_thread(bench.broker.start)
        else:
            await asyncio.to_thread(bench.deployment.kill, PROCESSES[victim])
            bench.between.open()
            bench.deployment.start(PROCESSES[victim])

    async def _delete_node(self, controllers: Controllers, trap: Trap) -> None:
        """Delete the node that the gang has most on; before it has any, that of the last node."""
        on = Counter((await self._places()).values())
        del on[""]
        name = max(on, key=lambda node: (on[node], node)) if on else self.bench.node_names[0]
        del self.bench.kubectl.nodes[name]
        await self.bench.kubectl.client.request("DELETE", f"/api/v1/nodes/{name}")
        controllers.node_is_gone(name)

    # --- what must hold -------------------------------------------------------------------------

    async def _places(self) -> dict[str, str]:
        """Return every pod's node by its name, at one moment."""
        pods = await self.bench.kubectl.pods()
        return {
            name: pod["spec"].get("nodeName", "")
            for name, pod in pods.items()
            if not name.startswith("mark-")
        }

    def _own(self, names: Any) -> list[str]:
        return [name for name in names if name.startswith(f"{self.name}-")]

    async def _until_whole(self, controllers: Controllers, names: set[str]) -> None:
        """Wait until the members and they alone are there and run, no node ever holding too many."""
        last: dict[str, Any] = {}

        async def is_whole() -> bool:
            with suppress(ApiServerError):
                pods = await self.bench.kubectl.pods()
                self._judge_room(pods)
                last.clear()
                last.update(pods)
                return set(pods) == names and all(
                    pod["status"].get("phase") == "Running"
                    and pod["spec"].get("nodeName") in self.bench.kubectl.nodes
                    for pod in pods.values()
                )
            return False

        try:
            await until(is_whole, "the whole gang runs", 2 * PATIENCE_SECONDS, 0.2)
        except AssertionError as error:
            left = Counter(
                (name in names, bool(pod["spec"].get("nodeName")), pod["status"].get("phase"))
                for name, pod in last.items()
            )
            raise AssertionError(f"{error}; (member, bound, phase): {dict(left)}") from error

    def _judge_room(self, pods: dict[str, Any]) -> None:
        on = Counter(pod["spec"].get("nodeName", "") for pod in pods.values())
        del on[""]
        self.wrong += [
            f"{node} holds {n} of {SLOTS}"
            for node, n in on.items()
            if n > SLOTS and node in self.bench.kubectl.nodes
        ]

    async def _agree(self) -> None:
        """Wait until core and API have the same: every member's place, and nothing else."""
        bench = self.bench
        uids = {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in (await bench.kubectl.pods()).values()
        }

        async def is_agreed() -> bool:
            found = await asyncio.to_thread(self._allocations)
            return found == uids and await asyncio.to_thread(self._state) == "Running"

        await until(is_agreed, "the API shows every member where it is, and no more", pause=0.2)

    def _allocations(self) -> dict[str, str] | None:
        with suppress(httpx.HTTPError, ValueError):
            nodes = self.bench.deployment.get("/ws/v1/partition/default/nodes")
            return {
                item["allocationKey"]: node["nodeID"]
                for node in nodes
                for item in node.get("allocations") or ()
            }
        return None

    def _state(self) -> str:
        return str(self.bench.deployment.application(self.name)["state"])

    def _judge_nodes(self) -> None:
        self.wrong += [
            f"the pod {uid} was on {', '.join(nodes)}"
            for uid, nodes in self.bench.kubelets.nodes_of.items()
            if len(nodes) > 1
        ]

    async def _delete(self) -> None:
        bench = self.bench
        for name in await bench.kubectl.pods():
            await insist(bench.kubectl, "DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        await until(lambda: asyncio.to_thread(lambda: self._allocations() == {}), "nothing is left")
        bench.kubelets.nodes_of.clear()
        letters = (await asyncio.to_thread(bench.deployment.get, "/v1/dead-letters"))["deadLetters"]
        self.wrong += [f"dead letter: {str(item)[:300]}" for item in letters]


@asynccontextmanager
async def bench_of(
    folder: Path, members: int, *, is_real: bool, broker: Any, broker_url: str
) -> AsyncIterator[Bench]:
    """Give a cluster with enough nodes, and Muster's services as processes over it."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(control_plane(folder, is_real=is_real))
        client = ApiClient(plane.access, "tests")
        stack.push_async_callback(client.close)
        if is_real:
            await cordon(client)
            await empty(client)
            stack.push_async_callback(empty, client)
        between = Between(plane.access)
        await between.start()
        stack.push_async_callback(between.stop)
        kubectl = Kubectl(client)
        await kubectl.config(QUEUES, **{"muster.scheduler.gangAdmission": "cluster"})
        deployment = Deployment(
            broker_url,
            folder,
            f"gang-{uuid.uuid4().hex[:8]}",
            MUSTER_RESOURCE_MANAGER="kubernetes",
            MUSTER_KUBERNETES_URL=between.url,
        )
        kubelets = await stack.enter_async_context(Kubelets(kubectl))
        bench = Bench(plane, between, kubectl, kubelets, deployment, broker, members)
        await bench.add_nodes()
        stack.push_async_callback(asyncio.to_thread, deployment.stop)
        await asyncio.to_thread(deployment.start_all)
        yield bench


async def run_all(
    folder: Path, victims: list[str], moments: list[str], members: int, *, is_real: bool
) -> list[Case]:
    """Run every case, in one life of the services; the first that does not end stops the rest."""
    cases: list[Case] = []
    with own_broker() as broker:
        async with bench_of(
            folder, members, is_real=is_real, broker=broker, broker_url=broker.url
        ) as bench:
            for victim in victims:
                if not bench.can_kill(victim):
                    print(f"{victim}: cannot be killed from here")
                    continue
                for moment in moments:
                    case = Case(bench, victim, moment)
                    cases.append(case)
                    try:
                        await case.run()
                    except AssertionError as error:
                        case.wrong.append(str(error))
                        return cases
                    finally:
                        print(f"{victim}, {moment}: {case.said()}")
    return cases


def show(cases: list[Case], members: int) -> None:
    """Print the table of docs/reliability.md."""
    table = Table(
        "killed", *MOMENTS, title=f"A gang of {members}: seconds until it runs whole (away)"
    )
    for victim in VICTIMS:
        found = {case.moment: case for case in cases if case.victim == victim}
        if found:
            table.add_row(victim, *(_cell(found.get(moment)) for moment in MOMENTS))
    Console(width=80).print(table)


def _cell(case: Case | None) -> str:
    if case is None:
        return ""
    if case.wrong:
        return "WRONG"
    away = f" ({case.away_seconds:.1f})" if case.away_seconds else ""
    return f"{case.seconds:.1f}{away}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make gang-of-200", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--only", action="append", choices=VICTIMS, help="this victim")
    parser.add_argument("--at", action="append", choices=list(MOMENTS), help="this moment")
    parser.add_argument(OPTION, action="store_true", dest="is_real")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    set_up_logs(level="error")  # of the client in this process
    folder = Path(tempfile.mkdtemp(prefix="muster-gang-"))
    print(f"logs in {folder}")
    cases = asyncio.run(
        run_all(
            folder,
            options.only or list(VICTIMS),
            options.at or list(MOMENTS),
            options.members,
            is_real=options.is_real,
        )
    )
    show(cases, options.members)
    wrong = sum(len(case.wrong) for case in cases)
    if wrong:
        sys.exit(f"{wrong} things did not hold; logs in {folder}")
    shutil.rmtree(folder)
    print("everything held")


if __name__ == "__main__":
    main()
