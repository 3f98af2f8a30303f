"""Clusters for the page to show, told to a replica as a core tells them; no core runs."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from services.api.access.guard import Access
from services.api.machine import ApiMachine
from services.api.replica import Replica
from services.api.routes.app import make_app
from services.api.web.server import listen, serve
from shared.messages.envelope import API_ALL, Envelope
from shared.messages.state import (
    AllocationState,
    ApplicationSummary,
    AskState,
    EvictionState,
    NodeState,
    PartitionState,
    PlaceholderCount,
    QueueState,
    StateChange,
    StateDelta,
    Waiting,
)

GPU = "nvidia.com/gpu"
NODE = {"vcore": 192_000, "memory": 1536 * 2**30, "pods": 110, GPU: 16}
POD = {"vcore": 8_000, "memory": 48 * 2**30, "pods": 1, GPU: 1}
START_NS = 1_795_000_000_000_000_000
HALF_A_MINUTE_NS = 30_000_000_000
LEAVES = (
    "root.ml.train",
    "root.ml.serve",
    "root.batch",
    "root.research.nlp",
    "root.research.vision",
)


def times(amounts: dict[str, int], count: int) -> dict[str, int]:
    return {name: value * count for name, value in amounts.items()}


@dataclass
class Cluster:
    """A replica that was told of some nodes, applications and pods, and of how they change."""

    nodes: int
    pods: int
    applications: int
    seed: int = 1
    now_ns: int = START_NS
    machine: ApiMachine = field(default_factory=lambda: ApiMachine("one"))
    seq: int = 1
    epoch: int = 1
    changes: int = 0
    name: str = "default"  # the partition's

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.on_node = [0] * self.nodes
        self.of = [0] * self.applications
        self.wants = [4 * self.waits(owner) for owner in range(self.applications)]
        self.placed: list[AllocationState] = []
        self.asked = 0

    # --- what is told -----------------------------------------------------------------------------

    def tell(self, delta: StateDelta) -> None:
        envelope = Envelope(
            "m", "StateDelta", delta, API_ALL, "core", epoch=self.epoch, seq=self.seq,
            partition=self.name,
        )  # fmt: skip
        self.machine.handle(envelope, self.now_ns)

    def tell_more(self, **sections) -> None:
        """Tell what has changed, by sections of a StateDelta."""
        self.seq += 1
        self.now_ns += 1_000_000
        self.tell(StateDelta(time_ns=self.now_ns, **sections))

    def tell_all(self) -> None:
        """Tell everything, as a core that has come to itself does."""
        share = max(1, self.pods // max(1, self.applications))
        self.placed = [
            self.allocation(n, self.roomy(), min(self.applications - 1, n // share))
            for n in range(self.pods)
        ]
        self.tell(
            StateDelta(
                reset=True,
                time_ns=self.now_ns,
                partitions=(self.partition(),),
                queues=tuple(self.queues()),
                nodes=tuple(self.node(n) for n in range(self.nodes)),
                applications=tuple(self.application(n) for n in range(self.applications)),
                asks=tuple(
                    self.ask(n, k)
                    for n in range(self.applications)
                    if self.waits(n)
                    for k in range(self.wants[n])
                ),
                allocations=tuple(self.placed),
            )
        )

    def roomy(self) -> int:
        """Return a node with room; some racks are chosen more often than others."""
        while True:
            n = int(self.nodes * self.random.random() ** 1.35)
            if self.on_node[n] < NODE[GPU] - (n % 4 == 3):
                return n

    def churn(self, count: int) -> None:
        """Let so many things change: a pod ends, and another starts elsewhere."""
        self.seq += 1
        self.now_ns += 100_000_000
        gone, come = [], []
        nodes: dict[int, None] = {}
        owners: dict[int, None] = {}
        for _ in range(count // 2):
            at = self.random.randrange(len(self.placed))
            old = self.placed[at]
            gone.append(replace(old, removed=True, why="STOPPED_BY_RM"))
            node, owner = (
                self.random.randrange(self.nodes),
                int(old.application_id.rpartition("-")[2]),
            )
            nodes |= {int(old.node_id.rpartition("-")[2]): None, node: None}
            owners[owner] = None
            self.on_node[int(old.node_id.rpartition("-")[2])] -= 1
            self.of[owner] -= 1
            self.changes += 1
            self.placed[at] = self.allocation(self.pods + self.changes, node, owner)
            come.append(self.placed[at])
        self.tell(
            StateDelta(
                time_ns=self.now_ns,
                partitions=(self.partition(),),
                queues=tuple(self.queues()),
                nodes=tuple(map(self.node, nodes)),
                applications=tuple(map(self.application, owners)),
                allocations=(*gone, *come),
            )
        )

    def pass_minutes(self, minutes: int, changes: int) -> None:
        """Let minutes go by, with so many changes in each half of one."""
        for _ in range(2 * minutes):
            self.now_ns += HALF_A_MINUTE_NS
            self.churn(changes)

    def evict(self, victim: int, winner: int, law: str, message: str, pods: int = 1) -> None:
        """Let pods of an application go for another's, one after the other."""
        found = [pod for pod in self.placed if pod.application_id == f"train-{victim}"][:pods]
        self.placed = [pod for pod in self.placed if pod not in found]
        self.of[victim] -= len(found)
        for pod in found:
            self.on_node[int(pod.node_id.rpartition("-")[2])] -= 1
        self.seq += 1
        told = tuple(
            EvictionState(
                self.now_ns, pod.allocation_key, pod.application_id, pod.node_id, law, message, pod_name=pod.tags["kubernetes.io/meta/podName"],
                winner=f"train-{winner}" if winner >= 0 else "", resource=POD, queue_name=LEAVES[victim % len(LEAVES)],
            )
            for pod in found
        )  # fmt: skip
        gone = tuple(replace(pod, removed=True, why="PREEMPTED_BY_SCHEDULER") for pod in found)
        self.tell(
            StateDelta(
                time_ns=self.now_ns,
                applications=(self.application(victim),),
                allocations=gone,
                evictions=told,
            )
        )

    # --- rows -------------------------------------------------------------------------------------

    def waits(self, owner: int) -> bool:
        return owner % 5 == 4

    def partition(self) -> PartitionState:
        held = times(POD, sum(self.on_node))
        return PartitionState(
            self.name,
            "bench",
            "Active",
            times(NODE, self.nodes),
            held,
            "fair",
            {},
            True,
            "",
            "",
            START_NS,
        )

    def queues(self) -> list[QueueState]:
        used = dict.fromkeys(LEAVES, 0)
        waits = dict.fromkeys(LEAVES, 0)
        for owner, pods in enumerate(self.of):
            used[LEAVES[owner % len(LEAVES)]] += pods
            waits[LEAVES[owner % len(LEAVES)]] += self.wants[owner]
        paths = ("root", "root.ml", *LEAVES[:3], "root.research", *LEAVES[3:])
        found = []
        for path in paths:
            inside = [leaf for leaf in LEAVES if leaf == path or leaf.startswith(f"{path}.")]
            limit = (
                None
                if path == "root.batch"
                else times(NODE, max(1, self.nodes * len(inside) // len(LEAVES)))
            )
            found.append(
                QueueState(
                    path, path.rpartition(".")[0], path in LEAVES, True, "Active",
                    times(NODE, self.nodes) if path == "root" else limit,
                    times(NODE, max(1, self.nodes // 8)) if path in LEAVES[:2] else None,
                    times(POD, sum(used[leaf] for leaf in inside)), times(POD, sum(waits[leaf] for leaf in inside)),
                    {"overquota.weight": "3"} if path == "root.ml" else {}, 0, sum(1 for n in range(self.applications) if LEAVES[n % len(LEAVES)] in inside), (), "fifo", True, 0,
                    (Waiting("shape-1", "NO_NODE_FITS", f"none of the 5 nodes has enough free now (5 Insufficient {GPU}); the nearest, node-0003, lacks 2 GPUs", START_NS - 9 * 10**11),),
                )
            )  # fmt: skip
        return found

    def node(self, n: int) -> NodeState:
        held = times(POD, self.on_node[n])
        zone = f"rack-{n * 8 // max(1, self.nodes)}"
        left = {name: value - held.get(name, 0) for name, value in NODE.items()}
        return NodeState(
            f"node-{n:04}",
            {"si/rackname": zone},
            NODE,
            held,
            {},
            left,
            n % 97 != 13,
            reservations=("ask-1",) if n % 211 == 5 else (),
        )

    def application(self, n: int) -> ApplicationSummary:
        name, queue = f"train-{n}", LEAVES[n % len(LEAVES)]
        waits = self.wants[n]
        gang = (
            (PlaceholderCount("worker", self.of[n] + waits, self.of[n], 0, 0, POD),)
            if n % 2 == 0
            else ()
        )
        age = (n * 7919 % 86_000) * 10**9
        return ApplicationSummary(
            name, "1", queue, "Accepted" if waits and not self.of[n] else "Running", f"user-{n % 17}", (), START_NS - age, START_NS - age, 0,
            times(POD, self.of[n]), {}, {}, times(POD, waits), 0, "", "", {}, (StateChange(START_NS - age, "Running"),), gang,
        )  # fmt: skip

    def allocation(self, number: int, node: int, owner: int) -> AllocationState:
        self.on_node[node] += 1
        self.of[owner] += 1
        tags = {"kubernetes.io/meta/podName": f"train-{owner}-worker-{number}"}
        return AllocationState(
            f"pod-{number}",
            f"train-{owner}",
            f"node-{node:04}",
            POD,
            task_group_name="worker",
            request_time_ns=self.now_ns,
            tags=tags,
        )

    def ask(self, owner: int, number: int) -> AskState:
        return AskState(
            f"ask-{owner}-{number}",
            f"train-{owner}",
            POD,
            task_group_name="worker",
            create_time_ns=START_NS - 9 * 10**11,
            shape="shape-1",
        )


@asynccontextmanager
async def served(
    machine: ApiMachine, port: int = 0, access: Access | None = None
) -> AsyncIterator[str]:
    """Serve a replica of a machine that is told of a cluster, and yield where."""
    async with served_of(Replica(_no_host, lambda: machine), port, access) as url:
        yield url


@asynccontextmanager
async def served_of(
    replica: Replica, port: int = 0, access: Access | None = None
) -> AsyncIterator[str]:
    """Serve a replica over HTTP, and yield where."""
    listening = listen("127.0.0.1", port)
    app = make_app(replica, access=access)
    task = asyncio.create_task(serve(app, listening))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _no_host():
    raise AssertionError("a page that only reads asks no service")
