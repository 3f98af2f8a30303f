"""What goes on in the demo: users submit jobs, a node fails and returns.

The plan has no end and is the same for the same seed. A round takes ROUND_SECONDS and has something
of everything: a gang, a wide one that gets nodes reserved, notebooks, a sweep that uses what is
free until a queue below its guarantee takes it back, a node that fails. It suits the demo's queues
on 20 nodes of 8 cores; on fewer nodes its jobs have fewer members.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from services.shim_adapter.records import NodeRecord
from shared.messages.commands import ChangeNodes, ManifestDocument, NodeSpec, SubmitManifests

ROUND_SECONDS = 60
_NODES = 20  # that the sizes below are for
_FEWEST_NODES = 4  # of which one may fail
_USERS = ("ada", "alan", "barbara", "edsger", "grace", "katherine", "linus", "margaret")
_FAMILY = "yunikorn.apache.org/"


@dataclass(frozen=True, slots=True)
class Step:
    """What happens ``after`` so many seconds; ``note`` says what to watch, "" for nothing."""

    after: float
    message: SubmitManifests | ChangeNodes
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Job:
    """A job: ``members`` pods of ``cores`` each that run ``seconds``; a gang starts as a whole."""

    what: str
    queue: str
    members: int
    cores: int
    seconds: int
    is_gang: bool = False
    note: str = ""


_TRAIN = "{name}, a gang, gets its guaranteed share back: muster events, muster why {name}"
_WIDE = "{name} waits until all its members fit: muster why {name}"
_SWEEP = "{name} asks for more than is free: muster queues, muster app {name}"
_ROUND: tuple[tuple[int, _Job | None], ...] = (  # at which second of it; None: a node fails
    (1, _Job("etl", "root.batch", 16, 1, 20)),
    (5, _Job("sweep", "root.research", 56, 3, 16, note=_SWEEP)),
    (9, _Job("notebook", "root.research", 1, 1, 100)),
    (14, _Job("train", "root.ml", 12, 3, 24, is_gang=True, note=_TRAIN)),
    (20, _Job("features", "root.batch", 8, 2, 25, is_gang=True)),
    (26, _Job("llm", "root.research", 12, 7, 15, is_gang=True, note=_WIDE)),
    (32, _Job("eval", "root.ml", 10, 2, 20)),
    (38, _Job("report", "root.batch", 24, 2, 15)),
    (44, None),
)
_AWAY_SECONDS = 12  # that a failed node is away


def plan(nodes: Sequence[NodeRecord], seed: int = 1) -> Iterator[Step]:
    """Yield what happens, in its order, for ever; ``after`` counts from the step before."""
    chosen = random.Random(seed)  # noqa: S311 - a plan, no secret
    share = min(len(nodes), _NODES) / _NODES
    last = 0.0
    for number in count(1):
        users = chosen.sample(_USERS, len(_USERS))
        for at, job in _ROUND:
            second = (number - 1) * ROUND_SECONDS + at + chosen.random()
            if job is not None:
                yield _submitted(job, users.pop(), number, second - last, share)
            elif len(nodes) >= _FEWEST_NODES:
                failed = chosen.choice(nodes)
                note = f"{failed.name} fails and returns: muster nodes, muster events"
                yield Step(second - last, ChangeNodes((NodeSpec(failed.name, "remove"),)), note)
                yield Step(_AWAY_SECONDS, ChangeNodes((_again(failed),)))
                second += _AWAY_SECONDS
            else:
                continue
            last = second


def _submitted(job: _Job, user: str, number: int, after: float, share: float) -> Step:
    name = f"{user}-{job.what}-{number}"
    body = json.dumps(_manifest(job, name, user, max(1, round(job.members * share))))
    return Step(
        after, SubmitManifests((ManifestDocument(name, 1, body),)), job.note.format(name=name)
    )


def _again(node: NodeRecord) -> NodeSpec:
    return NodeSpec(node.name, "add", node.capacity, node.labels, node.taints)


def _manifest(job: _Job, name: str, user: str, members: int) -> dict[str, Any]:
    requests = {"cpu": str(job.cores), "memory": f"{2 * job.cores}Gi"}
    annotations = {
        f"{_FAMILY}user.info": json.dumps({"user": user, "groups": [job.queue.rpartition(".")[2]]}),
        "muster.io/run-seconds": str(job.seconds),
    }
    if job.is_gang:
        group = {"name": "worker", "minMember": members, "minResource": requests}
        annotations[f"{_FAMILY}task-group-name"] = "worker"
        annotations[f"{_FAMILY}task-groups"] = json.dumps([group])
    container = {"name": "work", "image": "busybox", "resources": {"requests": requests}}
    pod = {
        "metadata": {
            "labels": {"applicationId": name, "queue": job.queue},
            "annotations": annotations,
        },
        "spec": {"schedulerName": "yunikorn", "restartPolicy": "Never", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completions": members, "parallelism": members, "template": pod},
    }
