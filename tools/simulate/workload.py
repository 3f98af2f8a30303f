"""What users do in a run: drawn from its seed, small clusters with everything in them.

Gangs of both styles, priorities, preemption under both policies, limits, reservations; deletes,
reloads, drains, and commands that are sent again because no answer came.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from shared.messages.commands import (
    ChangeNodes,
    DeleteApplication,
    DeletePods,
    ManifestDocument,
    NodeSpec,
    PlaceForeignPods,
    PodName,
    PodSpec,
    SubmitApplication,
    SubmitManifests,
    SubmitPods,
    TaskGroupSpec,
)
from shared.messages.interface import (
    GangSettings,
    SubGroup,
    TopologyConstraint,
    UpdateConfiguration,
)
from shared.model.names import DEFAULT_PARTITION, NODE_PARTITION, PARTITION
from shared.model.units import milliseconds, seconds
from tools.simulate.faults import BY_PEOPLE, FAULTY_NS, Fault

NAMES = (DEFAULT_PARTITION, "second")  # of the partitions of a run
TWO_OF = 4  # one seed of so many has two of them
RACKS_OF = 3  # one seed of so many has racks, with gangs that ask for one, and elastic ones
LEVEL = "rack"  # a label of the nodes, and the only level
_PARTITION = "{name: %s, %squeues: [{name: root, submitacl: '*', queues: [%s]}]}"
_QUOTA = ("", "{name: a, resources: {max: {vcore: 10}}}, {name: b}")
_GUARANTEED = (
    "",
    (
        "{name: a, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 6}}}, "
        "{name: b, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 2}}}"
    ),
)
_FAIR = (
    "",
    (
        "{name: a, maxapplications: 2, properties: {application.sort.policy: fair}}, "
        "{name: b, properties: {priority.offset: '5'}, resources: {guaranteed: {vcore: 4}}}"
    ),
)
_LIMITS = (
    "",
    (
        "{name: a, limits: [{users: [alice], maxresources: {vcore: 5}, maxapplications: 2}, "
        "{users: ['*'], maxresources: {vcore: 8}}]}, {name: b, resources: {max: {vcore: 6}}}"
    ),
)
_LOWERED = (
    "preemption: {quotapreemptionenabled: true}, ",
    (
        "{name: a, properties: {quota.preemption.delay: 1s}, resources: {max: {vcore: 6}}}, "
        "{name: b, properties: {application.unschedasks.backoff: '2'}}"
    ),
)
CONFIGS = (_QUOTA, _GUARANTEED, _FAIR, _LIMITS, _LOWERED)  # of a partition: switches, queues
REFUSED = ("", "{name: a, resources: {max: {vcore: -1}}}")  # by every core
_STOPPED_NS = seconds(45)


@dataclass(frozen=True, slots=True)
class Act:
    """Something that somebody does; ``again`` it is sent once more when no answer came."""

    at_ns: int
    message: object
    again: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """What a run is of."""

    config: str
    settings: Mapping[str, str]
    nodes: tuple[NodeSpec, ...]
    acts: tuple[Act, ...]
    confirm_delay_ns: int


def partitions_of(seed: int) -> int:
    """Return how many partitions a seed has: drawn apart, for it says nothing of the rest."""
    rng = Random(f"partitions/{seed}")  # noqa: S311 - repeatable is what it has to be
    return 1 if rng.randrange(TWO_OF) else 2


def has_racks(seed: int) -> bool:
    """Return whether a seed has racks: drawn apart, for it says nothing of the rest."""
    return not Random(f"has-racks/{seed}").randrange(RACKS_OF)  # noqa: S311 - as above


def drawn(seed: int, faults: list[Fault], partitions: int = 1, *, racks: bool = False) -> Workload:
    """Return the workload of a seed, with what users do among the faults.

    What a second partition has is drawn apart: the first is as it would be alone. So are the gangs
    that come where there are racks.
    """
    rng = Random(f"workload/{seed}")  # noqa: S311 - repeatable is what it has to be
    settings = {
        "gangAdmission": rng.choice(("queue", "cluster", "partial")),
        "policy": rng.choice(("yunikorn", "yunikorn", "kai")),
        "backfill": rng.choice(("enabled", "disabled")),
        "starvationGuard": rng.choice(("5m", "10s")),
    }
    cores = rng.choice((4000, 6000))
    nodes = tuple(
        NodeSpec(f"n{at}", "add", {"vcore": cores, "memory": 1000, "pods": 9})
        for at in range(rng.randint(2, 4))
    )
    acts: list[Act] = []
    for number in range(rng.randint(2, 7)):
        acts += _application(rng, f"app-{number}", rng.randrange(_STOPPED_NS * 2 // 3))
    beside = Random(f"second/{seed}") if partitions > 1 else None  # noqa: S311 - as above
    acts += _others(rng, nodes, beside)
    delay_ns = rng.choice((0, 0, milliseconds(300), seconds(1)))
    config = _file(rng.choice(CONFIGS), beside)
    if beside is not None:
        there = {NODE_PARTITION: NAMES[1]}
        nodes += tuple(
            NodeSpec(f"m{at}", "add", nodes[0].capacity, there)
            for at in range(beside.randint(1, 3))
        )
        for number in range(beside.randint(2, 5)):
            at_ns = beside.randrange(_STOPPED_NS * 2 // 3)
            acts += _application(beside, f"second-{number}", at_ns, NAMES[1])
    if racks:
        in_racks = Random(f"racks/{seed}")  # noqa: S311 - as above
        settings |= _racks_settings(in_racks)
        nodes = tuple(
            replace(node, labels={**node.labels, LEVEL: f"r{at % 2}"})
            for at, node in enumerate(nodes)
        )
        for number in range(in_racks.randint(2, 4)):
            acts += _gang_in_racks(in_racks, f"near-{number}")
    for fault in faults:
        acts += _mishap(fault, nodes, partitions)
    acts.sort(key=lambda act: act.at_ns)
    return Workload(config, settings, nodes, tuple(acts), delay_ns)


def _file(first: tuple[str, str], beside: Random | None) -> str:
    """Return a queues.yaml with such a first partition and, where there is a second, one drawn."""
    parts = [first] if beside is None else [first, beside.choice(CONFIGS)]
    said = (_PARTITION % (name, *part) for name, part in zip(NAMES, parts, strict=False))
    return f"partitions: [{', '.join(said)}]"


def _happens(rng: Random, percent: int) -> bool:
    return rng.randrange(100) < percent


def _application(
    rng: Random, name: str, at_ns: int, partition: str = DEFAULT_PARTITION
) -> list[Act]:
    """Return how an application comes: with its pods, or before them; and what becomes of it."""
    asked = replace(_asked(rng, name), partition=partition)
    pods = _pods(rng, asked)
    again = _happens(rng, 30)
    acts = [Act(at_ns, SubmitPods(pods), again)]
    if _happens(rng, 20):
        late_ns = at_ns + milliseconds(rng.randrange(4000))
        acts = [Act(at_ns, asked), Act(late_ns, SubmitPods(pods))]
    gone_ns = at_ns + milliseconds(rng.randrange(20_000))
    if _happens(rng, 25):
        acts.append(Act(gone_ns, DeleteApplication(name)))
        if _happens(rng, 40):  # and again, under the same names
            acts.append(Act(gone_ns + milliseconds(rng.randrange(3000)), SubmitPods(pods)))
    elif _happens(rng, 20):
        acts.append(Act(gone_ns, DeletePods((PodName(rng.choice(pods).name),))))
    return acts


def _asked(rng: Random, name: str) -> SubmitApplication:
    vcore, memory = rng.choice((1000, 1000, 2000)), rng.choice((50, 100))
    first = TaskGroupSpec("tg", rng.randint(1, 5), {"vcore": vcore, "memory": memory, "pods": 1})
    second = TaskGroupSpec("extra", rng.randint(1, 2), {"vcore": 1000, "pods": 1})
    return SubmitApplication(
        name,
        rng.choice(("root.a", "root.b")),
        user=rng.choice(("alice", "bob")),
        style=rng.choice(("Soft", "Hard")),
        placeholder_timeout_seconds=rng.choice((5, 12, 30)),
        task_groups=(first, second) if _happens(rng, 25) else (first,),
    )


def _pods(rng: Random, asked: SubmitApplication) -> tuple[PodSpec, ...]:
    """Return the real pods of an application: of a gang, or the same without being one."""
    is_gang = _happens(rng, 65)
    run_ns = rng.choice((0, seconds(2), seconds(5), seconds(12)))
    priority = rng.choice((0, 0, 5, 10))
    return tuple(
        PodSpec(
            f"{asked.application_id}-{group.name}-{at}",
            asked.application_id,
            group.min_resource,
            queue_name=asked.queue_name,
            user=asked.user,
            task_group_name=group.name if is_gang else "",
            task_groups=asked.task_groups if is_gang else (),
            style=asked.style,
            placeholder_timeout_seconds=asked.placeholder_timeout_seconds,
            priority=priority,
            run_ns=run_ns,
            partition=asked.partition,
            allow_preempt_self=_happens(rng, 80),
        )
        for group in asked.task_groups
        for at in range(group.min_member)
    )


def _racks_settings(rng: Random) -> dict[str, str]:
    """Return the settings of a run with racks; under kai all actions are on by themselves."""
    return {
        "topologyLevels": LEVEL,
        "actions": rng.choice(("", "allocate,preempt,stalegangeviction")),
        "stalenessGracePeriod": rng.choice(("60s", "5s", "-1")),
        "restartRoom": rng.choice(("30s", "0s")),
    }


def _gang_in_racks(rng: Random, name: str) -> list[Act]:
    """Return how a gang comes that asks for a rack, or has more pods than it needs, or both.

    Some lose pods, which their controller makes again, or are made again as a whole.
    """
    least, wish = rng.randint(1, 3), TopologyConstraint()
    if _happens(rng, 70):
        wish = rng.choice((TopologyConstraint(required=LEVEL), TopologyConstraint(preferred=LEVEL)))
    amount = {"vcore": rng.choice((1000, 2000)), "pods": 1}
    one = PodSpec(
        name,
        name,
        amount,
        queue_name=rng.choice(("root.a", "root.b")),
        user=rng.choice(("alice", "bob")),
        task_group_name="w",
        style=rng.choice(("Soft", "Hard")),
        placeholder_timeout_seconds=rng.choice((5, 30)),
        priority=rng.choice((0, 5)),
        run_ns=rng.choice((0, 0, seconds(12))),
    )
    count = least
    if _happens(rng, 60):
        one = replace(one, gang=GangSettings((SubGroup("w", "", least, topology=wish),)))
        count += rng.randint(0, 3)
    else:
        one = replace(one, task_groups=(TaskGroupSpec("w", least, amount, topology=wish),))
    pods = tuple(replace(one, name=f"{name}-{at}") for at in range(count))
    at_ns = rng.randrange(_STOPPED_NS * 2 // 3)
    acts = [Act(at_ns, SubmitPods(pods))]
    if _happens(rng, 50):
        lost = pods if _happens(rng, 40) else pods[:1]
        lost_ns = at_ns + milliseconds(2000 + rng.randrange(15_000))
        names = tuple(PodName(pod.name) for pod in lost)
        again = tuple(replace(pod, name=f"{pod.name}-again") for pod in lost)
        acts.append(Act(lost_ns, DeletePods(names)))
        acts.append(Act(lost_ns + milliseconds(rng.randrange(4000)), SubmitPods(again)))
    return acts


def _others(rng: Random, nodes: tuple[NodeSpec, ...], beside: Random | None) -> list[Act]:
    acts: list[Act] = []
    if _happens(rng, 30):
        at_ns = rng.randrange(FAULTY_NS)
        text = _file(rng.choice((*CONFIGS, REFUSED)), beside)
        acts.append(Act(at_ns, UpdateConfiguration(text)))
    if _happens(rng, 20):
        late = NodeSpec("late", "add", nodes[0].capacity)
        acts.append(Act(rng.randrange(FAULTY_NS), ChangeNodes((late,))))
    return acts


def _mishap(fault: Fault, nodes: tuple[NodeSpec, ...], partitions: int) -> list[Act]:
    """Return what a fault of the cluster's is, as what an operator or a controller does."""
    if fault.kind not in BY_PEOPLE:
        return []
    node = nodes[fault.choice % len(nodes)]
    over_ns = fault.at_ns + fault.amount_ns
    half = {name: value // 2 for name, value in node.capacity.items()}
    match fault.kind:
        case "node-lost":
            first, then = NodeSpec(node.name, "remove"), node
        case "node-drained":
            first, then = NodeSpec(node.name, "drain"), NodeSpec(node.name, "undrain")
        case "node-shrunk":
            first = NodeSpec(node.name, "update", half)
            then = NodeSpec(node.name, "update", node.capacity)
        case "foreign-pod":
            name = f"foreign-{fault.index}"
            pod = PodSpec(name, "", {"vcore": 2000, "pods": 1}, "kube-system", foreign="default")
            gone = DeletePods((PodName(name, "kube-system"),))
            return [
                Act(fault.at_ns, PlaceForeignPods(node.name, (pod,))),
                Act(over_ns, gone),
            ]
        case "submitted-twice":
            partition = NAMES[fault.choice % partitions]
            asked = _manifests(f"twice-{fault.index}", seconds(fault.choice % 4), partition)
            return [Act(fault.at_ns, asked), Act(over_ns, asked)]
        case _:  # a pod is killed
            name = f"app-{fault.choice % 7}-tg-{fault.choice % 3}"
            return [Act(fault.at_ns, DeletePods((PodName(name),)))]
    return [Act(fault.at_ns, ChangeNodes((first,))), Act(over_ns, ChangeNodes((then,)))]


def _manifests(name: str, run_ns: int, partition: str) -> SubmitManifests:
    """Return two pods as manifests with a key; they are soon over, or run on (0)."""
    labels = {"applicationId": name, "queue": "root.b"}
    if partition != DEFAULT_PARTITION:
        labels[PARTITION] = partition
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{at}", "labels": labels},
            "spec": {
                "schedulerName": "yunikorn",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}],
            },
        }
        for at in range(2)
    ]
    documents = [ManifestDocument(name, at, json.dumps(pod)) for at, pod in enumerate(pods)]
    return SubmitManifests(tuple(documents), run_ns, idempotency_key=name)
