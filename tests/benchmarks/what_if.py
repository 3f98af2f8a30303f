"""How long a what-if takes, and how long others wait for it: ``make bench-what-if``.

A cluster of nodes with ten pods each, in twenty queues, and as many gangs that wait as there are
tens of nodes. Per question: CPU milliseconds of the batch that answers it, which is what a copy of
the process works (``services/core/forecast_process.py``), and of the next ask, beside those of an ask
that nobody asked before. What decisions wait for is the copy's making, in a row of its own.
Each at growing sizes, with the growth.
"""

import argparse
import gc
import time
from statistics import median

from services.core.forecast_process import ForecastProcess
from shared.messages.envelope import CORE, Envelope
from shared.messages.interface import AddApplicationRequest, AllocationAsk, NodeAction, NodeInfo
from shared.messages.what_if import Forecast, WhatIf
from shared.model.names import RUN_SECONDS
from shared.model.resources import multiply
from tests.builders import Core, config_of

SIZES = (500, 5_000)
PODS_A_NODE = 10
QUEUES = 20
MEMBERS = 1_000
ADDED = 100
POD = {"vcore": 1_000, "memory": 2**30, "pods": 1}
ROUNDS = 5


def configuration(share: int, *, more: int = 0) -> str:
    """Return a queues.yaml that lets a queue have ``share`` cores.

    With ``more``, so many queues have twice that, and the nodes another order.
    """
    leaves = (
        f"{{name: q{at}, resources: {{guaranteed: {{vcore: 10}}, "
        f"max: {{vcore: {share * (1 + (at < more))}}}}}, "
        "limits: [{limit: l, users: ['*'], maxapplications: 100000}]}"
        for at in range(QUEUES)
    )
    text = config_of(*leaves, "{name: free}")
    order = "name: default, nodesortpolicy: {type: binpacking}, "
    return text.replace("name: default, ", order) if more else text


def cluster(nodes: int) -> Core:
    """Return a cluster whose queues are full, with gangs that wait for their maxima."""
    per_queue = nodes * PODS_A_NODE // QUEUES
    core = Core(configuration(per_queue))
    capacity = {"vcore": 16_000, "memory": 2**36, "pods": 110}
    infos = [NodeInfo(f"n{at}", NodeAction.CREATE, capacity) for at in range(nodes)]
    core.update(nodes=tuple(infos))
    for at in range(QUEUES):
        name = f"app{at}"
        core.application(name, f"root.q{at}")
        for part in range(10):  # each states another run time
            keys = [f"{name}-{part}-{pod}" for pod in range(per_queue // 10)]
            core.asks(name, keys, POD, allocation_tags={RUN_SECONDS: str(60 + part)})
        for number in range(nodes // 10 // QUEUES):
            core.gang(f"gang{at}-{number}", 10, POD, queue=f"root.q{at}")
    core.update()
    assert len(core.partition.nodes.nodes["n0"].allocations) == PODS_A_NODE
    return core


def gang_of(members: int, queue: str = "root.free") -> WhatIf:
    request = AddApplicationRequest("new", queue, placeholder_ask=multiply(POD, members))
    asks = [
        AllocationAsk(f"new-{at}", "new", POD, placeholder=True, task_group_name="tg")
        for at in range(members)
    ]
    return WhatIf(applications=(request,), asks=tuple(asks))


def questions(nodes: int) -> dict[str, tuple[WhatIf, int]]:
    """Return the questions, each with how many pods would be placed."""
    more = configuration(nodes * PODS_A_NODE // QUEUES, more=2)
    waiting = nodes // 10 // QUEUES * 2 * 10
    return {
        f"a gang of {MEMBERS:,}": (gang_of(MEMBERS), MEMBERS),
        "a node drained": (WhatIf(drain="n7"), PODS_A_NODE),
        "a gang of 20, when": (gang_of(20, "root.q0"), 0),
        f"{ADDED} nodes more": (WhatIf(add_nodes=ADDED, like="n7"), 0),
        "a configuration": (WhatIf(queues=more), waiting),
    }


def batch(core: Core, message: object) -> tuple[float, list]:
    """Return the CPU milliseconds of a batch of one message, and what it answers."""
    start = time.process_time()
    envelope = Envelope("q", type(message).__name__, message, CORE, "api", reply_to="api.one#1")
    core.scheduler.handle(envelope, core.now_ns)
    out = core.scheduler.flush(core.now_ns)
    return 1000 * (time.process_time() - start), [item.message for item in out]


def one_ask(core: Core, number: int) -> float:
    """Return the CPU milliseconds of one ask more that is placed."""
    start = time.process_time()
    core.asks("free", [f"free-{number}"], POD)
    return 1000 * (time.process_time() - start)


def copied() -> float:
    """Return the CPU milliseconds that making a copy of this process takes it."""
    copy = ForecastProcess()
    start = time.process_time()
    copy.start(lambda: Forecast(done=True))
    took = 1000 * (time.process_time() - start)
    copy.stop()
    return took


def measured(core: Core, question: WhatIf, placed: int) -> tuple[float, float]:
    """Return what a question takes, and the ask behind it, as medians."""
    took, behind = [], []
    for _ in range(ROUNDS):
        milliseconds, (answer,) = batch(core, question)
        assert answer.done, answer.message
        assert sum(item.placed for item in answer.applications) == placed, answer.message
        waits = [item for item in answer.applications if item.is_new and not placed]
        assert all(item.expected_start_ns or item.no_start for item in waits)
        took.append(milliseconds)
        behind.append(one_ask(core, next(_numbers)))
    return median(took), median(behind)


_numbers = iter(range(10**6))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    sizes = parser.parse_args().sizes
    rows: dict[str, list[tuple[float, float]]] = {}
    for nodes in sizes:
        core = cluster(nodes)
        core.application("free", "root.free")
        for text in {question.queues for question, _ in questions(nodes).values()} - {""}:
            core.scheduler._parse(text)  # which a thread of the host does, ahead of the batch
        gc.collect()
        alone = median(one_ask(core, next(_numbers)) for _ in range(3 * ROUNDS))
        rows.setdefault("an ask alone", []).append((alone, alone))
        making = median(copied() for _ in range(ROUNDS))
        rows.setdefault("a copy is made", []).append((making, alone))
        for name, (question, placed) in questions(nodes).items():
            rows.setdefault(name, []).append(measured(core, question, placed))
    head = "".join(f"{size:>9}{'next ask':>10}" for size in sizes)
    print(f"{'CPU ms, nodes':<22}{head}    growth")
    for name, found in rows.items():
        cells = "".join(f"{took:>9.1f}{behind:>10.2f}" for took, behind in found)
        print(f"{name:<22}{cells}    {found[-1][0] / found[0][0]:.1f}x")


if __name__ == "__main__":
    main()
