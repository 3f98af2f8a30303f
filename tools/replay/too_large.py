"""Which jobs of a trace the nodes could not hold if they were empty.

A gang that is so is not submitted: where its placeholders start one by one they would hold what
there is for ever. A single pod is: it holds nothing while it waits.
"""

from collections.abc import Sequence

from services.cli.simulated_nodes import RACK_LABEL
from services.shim_adapter.records import NodeRecord
from shared.model.resources import Resource, add_into, multiply
from tools.replay.jobs import Job, Trace

TOO_LARGE = "larger than the cluster"
Groups = tuple[tuple[int, Resource], ...]


def rooms_of_racks(nodes: Sequence[NodeRecord], racks: int) -> list["Room"]:
    """Return the room of each rack of so many, in no order; [] without racks."""
    found: dict[str, list[NodeRecord]] = {}
    for node in nodes if racks else ():
        found.setdefault(node.labels[RACK_LABEL], []).append(node)
    return [Room(own) for own in found.values()]


class Room:
    """What nodes could hold if they were empty; what was found out of jobs alike is kept."""

    def __init__(self, nodes: Sequence[NodeRecord]) -> None:
        kinds: dict[tuple[tuple[str, int], ...], int] = {}
        self._total: Resource = {}
        for node in nodes:
            key = tuple(sorted(node.capacity.items()))
            kinds[key] = kinds.get(key, 0) + 1
            add_into(self._total, node.capacity)
        self._kinds = [(dict(key), count) for key, count in kinds.items()]
        self._known: dict[tuple[tuple[int, tuple[tuple[str, int], ...]], ...], bool] = {}

    def could_hold(self, job: Job) -> bool:
        """Return whether empty nodes could hold every group of a job, and all groups' sum."""
        key = tuple((count, tuple(sorted(pod.items()))) for count, pod in job.groups)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._could_hold(job.groups)
        return found

    def _could_hold(self, groups: Groups) -> bool:
        whole: Resource = {}
        for count, pod in groups:
            if self._places(pod) < count:
                return False
            add_into(whole, multiply(pod, count))
        return all(self._total.get(name, 0) >= amount for name, amount in whole.items())

    def _places(self, pod: Resource) -> int:
        wanted = [(name, amount) for name, amount in pod.items() if amount > 0]
        return sum(
            count * min((has.get(name, 0) // amount for name, amount in wanted), default=0)
            for has, count in self._kinds
        )


def warning_of(trace: Trace, nodes: Sequence[NodeRecord]) -> str:
    """Return the sentence about jobs that are larger than the cluster, "" where there is none."""
    room = Room(nodes)
    large = [job for job in trace.jobs if not room.could_hold(job)]
    if not large:
        return ""
    first = large[0]
    return (
        f"{len(large):,} of {len(trace.jobs):,} jobs are {TOO_LARGE} and can never fit, the first "
        f"{first.name}: {_pods(first)}"
    )


def sentence_of(job: Job) -> str:
    """Return why a job that is larger than the cluster did not start."""
    return f"application {job.name} can never fit: it is {TOO_LARGE}: {_pods(job)}"


def _pods(job: Job) -> str:
    return " and ".join(f"{count:,} of {_pod(pod)}" for count, pod in job.groups)


def _pod(pod: Resource) -> str:
    return ", ".join(f"{name}: {amount}" for name, amount in sorted(pod.items()) if name != "pods")
