"""Answers of an API as it gives them: what the tables of these tests are made of."""

from services.api.projection.stories import Stories
from services.api.views.trace import trace_entries
from services.api.why.answer import (
    Eviction,
    Failure,
    Gang,
    Group,
    LimitRow,
    LogLine,
    Mismatch,
    Nearest,
    NodeClass,
    Nodes,
    Wait,
    WaitsFor,
    Why,
)
from services.api.why.what_if import Answer, Evicted, Outcome, Place, QueueOutcome, Refused
from services.api.why.when import When
from shared.messages.trace import TraceRecord
from shared.messages.what_if import QueueChange

WHY_GANG = (
    "the whole gang needs 64 GiB memory, and user research-platform has 15 GiB memory left of its "
    "640 GiB memory in queue root.ml"
)


def application(name, state="Running", **fields):
    return {
        "applicationID": name,
        "queueName": "root.ml",
        "state": state,
        "message": "",
        "notes": [],
        "placeholders": {"wanted": 0, "held": 0, "replaced": 0, "timedout": 0},
        "running": 0,
        "pending": 0,
        "waiting": [],
        "hasEnded": state in ("Completed", "Failed", "Rejected"),
        "submissionTime": 1_767_225_600_000_000_000,
        "finishedTime": 0,
        **fields,
    }


def gang(wanted, held=0, replaced=0):
    return {"wanted": wanted, "held": held, "replaced": replaced, "timedout": 0}


def waiting(reason, message, asks=1):
    return [{"reason": reason, "message": message, "asks": asks}]


APPLICATIONS = [
    application("spark-pi", placeholders=gang(9, 0, 9), running=9, queueName="root.batch"),
    application("mpi-train", placeholders=gang(16, 16), pending=16),
    application(
        "mpi-next",
        "Accepted",
        placeholders=gang(8),
        pending=8,
        waiting=waiting("GANG_HEADROOM", WHY_GANG, 8),
    ),
    application(
        "too-large",
        "Rejected",
        queueName="root.batch",
        message="queue root.batch cannot fit application too-large: larger than max",
    ),
]


def pod(name, node="", **fields):
    return {
        "name": name,
        "namespace": "default",
        "applicationID": "mpi-next",
        "queueName": "root.ml",
        "state": "Allocated" if node else "Pending",
        "nodeID": node,
        "taskGroupName": "worker",
        "placeholder": False,
        "resource": {"vcore": 4000, "memory": 8 * 2**30, "pods": 1},
        "priority": 0,
        "requestTime": 1_767_225_600_000_000_000,
        "allocationKey": f"key-of-{name}",
        "waiting": None,
        **fields,
    }


PODS = [
    pod("mpi-next-0", "gpu-node-eu-west-1a-0001"),
    pod("mpi-next-1", "gpu-node-eu-west-1a-0002"),
    pod("mpi-next-2", waiting={"reason": "NO_NODE_FITS", "message": WHY_GANG}),
]
DETAIL = {
    **APPLICATIONS[2],
    "placeholders": gang(8, 1, 2),
    "running": 2,
    "notes": ["pod mpi-next-2 asks for more than its task group worker has"],
    "pods": PODS,
    "groups": [{"name": "worker", "wanted": 8, "held": 1, "replaced": 2, "timedout": 0}],
    "application": {
        "usedResource": {"vcore": 8000, "memory": 16 * 2**30, "pods": 2},
        "pendingResource": {"vcore": 4000},
        "stateLog": [{"applicationState": "New"}, {"applicationState": "Accepted"}],
    },
}


def node(name, **fields):
    capacity = {"vcore": 8000, "memory": 32 * 2**30, "pods": 110, "nvidia.com/gpu": 4}
    return {
        "nodeID": name,
        "capacity": capacity,
        "available": capacity,
        "schedulable": True,
        "isReserved": False,
        "attributes": {"si/hostname": name, "zone": "a"},
        **fields,
    }


NODES = [
    node(
        "node-0010",
        allocated={"vcore": 6000, "memory": 2**30},
        utilized={"vcore": 75},
        allocations=[{}, {}],
    ),
    node("node-0002", allocated={"vcore": 2000}, utilized={"vcore": 25}, allocations=[{}]),
    node("node-0001", schedulable=False),
]


ONE_NODE = {
    **node("gpu-node-eu-west-1a-0001"),
    "capacity": {"vcore": 8_000, "memory": 32 * 2**30, "pods": 110, "nvidia.com/gpu": 4},
    "allocated": {"vcore": 4_500, "memory": 8 * 2**30, "pods": 1, "nvidia.com/gpu": 1},
    "occupied": {"vcore": 250, "memory": 300 * 2**20},
    "available": {"vcore": 3_250, "memory": 23 * 2**30 + 724 * 2**20, "pods": 109},
    "isReserved": True,
    "reservations": ["key-of-mpi-next-2"],
    "allocations": [{}],
    "foreignAllocations": [
        {"allocationKey": "kube-proxy-x7", "resource": {"vcore": 250, "memory": 300 * 2**20}}
    ],
}
NO_USAGE = {"usageHalfLife": "", "usageWindow": "", "queues": []}
ONE_USER = {
    "userName": "ada",
    "groups": {"mpi-next": "research", "spark-pi": "research"},
    "queues": {
        "queuePath": "root",
        "resourceUsage": {"vcore": 12_000, "memory": 24 * 2**30},
        "runningApplications": ["mpi-next"],
        "children": [
            {
                "queuePath": "root.ml",
                "resourceUsage": {"vcore": 12_000, "memory": 24 * 2**30},
                "maxResources": {"vcore": 16_000, "nvidia.com/gpu": 8},
                "maxApplications": 2,
                "runningApplications": ["mpi-next"],
            },
            {"queuePath": "root.batch"},
        ],
    },
}


def _domain(name, level, nodes, used, free, below=()):
    capacity = {"vcore": 8_000 * nodes, "nvidia.com/gpu": 4 * nodes}
    allocated = {"vcore": 2_000 * used, "nvidia.com/gpu": used}
    left = {"vcore": 2_000 * free, "nvidia.com/gpu": free}
    return {
        "name": name, "level": level, "nodes": nodes, "schedulable": nodes, "capacity": capacity,
        "allocated": allocated, "occupied": {}, "free": left, "domains": list(below),
    }  # fmt: skip


TOPOLOGY = {
    "levels": ["block", "rack"],
    "outside": ["cpu-1"],
    **_domain(
        "",
        "",
        4,
        10,
        6,
        [
            _domain("block-1", "block", 2, 7, 1, [_domain("rack-1", "rack", 2, 7, 1)]),
            _domain("block-2", "block", 2, 3, 5, [_domain("rack-9", "rack", 2, 3, 5)]),
        ],
    ),
}


def queue(name, **fields):
    return {
        "queuename": name,
        "status": "Active",
        "isLeaf": True,
        "isManaged": True,
        "currentPriority": -(2**31),
        "isPriorityFence": False,
        "runningApps": 1,
        "waiting": [],
        **fields,
    }


QUEUES = queue(
    "root",
    isLeaf=False,
    children=[
        queue(
            "root.batch",
            maxResource={"vcore": 80_000, "memory": 320 * 2**30},
            allocatedResource={"vcore": 76_000, "memory": 2**30},
            maxRunningApps=4,
        ),
        queue(
            "root.ml",
            status="Draining",
            guaranteedResource={"vcore": 40_000},
            maxResource={"vcore": 64_000},
            pendingResource={"vcore": 32_000},
            currentPriority=10,
            waiting=waiting("GANG_HEADROOM", WHY_GANG, 8),
        ),
    ],
)
CONFIG = {"checksum": "A", "since": 0, "error": "", "warnings": [], "plugins": []}
EVENTS = [
    {
        "type": 2,
        "objectID": "mpi-next",
        "timestampNano": 1_767_225_600_000_000_000,
        "eventChangeType": 2,
        "eventChangeDetail": 201,
        "referenceID": "key-1",
        "resource": {"resources": {"vcore": {"value": 4000}}},
    },
    {
        "type": 3,
        "objectID": "node-0001",
        "timestampNano": 1_767_225_601_000_000_000,
        "eventChangeType": 1,
        "eventChangeDetail": 302,
        "message": "schedulable: false",
        "resource": {},
    },
]


def batch(records, lowest=0, instance="i"):
    return {
        "InstanceUUID": instance,
        "LowestID": lowest,
        "HighestID": max(0, lowest + len(records) - 1),
        "EventRecords": records or None,
    }


WHY = Why(
    name="mpi-next",
    kind="application",
    application_id="mpi-next",
    queue_name="root.ml",
    state="Accepted",
    verdict="waiting",
    reason="GANG_PLACES",
    sentence="application mpi-next waits until its whole gang fits: there is room for at most "
    "6 of its 8 members, on 3 of the 20 nodes; another needs 8 GPUs, and the nearest node, "
    "gpu-node-eu-west-1a-0002, lacks 2 GPUs.",
    since=0,
    mismatches=[Mismatch(reason="TaskGroupsError", message="task group 'x' is none of mpi-next")],
    waits=[
        Wait(reason="GANG_PLACES", message="the whole gang has no place", since=0, asks=8),
        Wait(reason="QUEUE_QUOTA", message="Not enough queue quota", since=0, asks=2),
    ],
    need={"nvidia.com/gpu": 64, "vcore": 32_000},
    queues=[
        LimitRow(
            owner="queue root.ml",
            queue_name="root.ml",
            resource="vcore",
            max=64_000,
            used=16_500,
            headroom=47_500,
            need=32_000,
            lacks=0,
        )
    ],
    nodes=Nodes(
        total=20,
        classes=[
            NodeClass(
                name="p4d.24xlarge",
                nodes=20,
                fails=[Failure(what="nvidia.com/gpu", nodes=17), Failure(what="taints", nodes=3)],
            )
        ],
        nearest=Nearest(
            node_id="gpu-node-eu-west-1a-0002",
            lacks={"nvidia.com/gpu": 2},
            cure="2 nvidia.com/gpu more free on gpu-node-eu-west-1a-0002",
        ),
    ),
    waits_for=[
        WaitsFor(kind="queue", name="root.ml", since=0, text="8 vcore left of its 64 vcore")
    ],
    gang=Gang(
        wanted=8,
        held=0,
        replaced=0,
        groups=[
            Group(
                name="worker",
                wanted=8,
                held=0,
                replaced=0,
                timedout=0,
                missing=8,
                why="GANG_PLACES: the whole gang has no place",
            )
        ],
    ),
    evictions=[
        Eviction(
            time=0,
            role="winner",
            victim="3f2a",
            victim_name="spark-exec-7",
            victim_application="spark-pi",
            queue_name="root.batch",
            winner="mpi-next",
            ask="9b1c",
            node_id="gpu-node-eu-west-1a-0001",
            resource={"vcore": 4000},
            law="guarantee",
            message="Preempted by 9b1c",
        )
    ],
    log=[LogLine(message="Preemption does not help", count=3, last=0)],
).model_dump(by_alias=True)


HELD = Why(
    name="mpi-next",
    kind="application",
    application_id="mpi-next",
    queue_name="",
    state="",
    verdict="waiting",
    reason="VOLUMES",
    sentence='application mpi-next waits for its volumes: persistentvolumeclaim "data-0" not found.',
    since=0,
    waits=[
        Wait(
            reason="VOLUMES",
            message='persistentvolumeclaim "data-0" not found',
            since=0,
            asks=12,
            pods=[f"mpi-next-worker-{at}" for at in range(5)],
            held_back=True,
        ),
        Wait(
            reason="SCHEDULING_GATED",
            message="kueue.x-k8s.io/admission",
            since=0,
            asks=1,
            pods=["mpi-next-launcher"],
            held_back=True,
        ),
    ],
).model_dump(by_alias=True)


def outcome(name, wanted, placed, later=0, reason="", message="", nodes=(), start=0, no_start=""):
    return Outcome(
        application_id=name,
        queue_name="root.ml",
        wanted=wanted,
        placed=placed,
        after_evictions=later,
        is_gang=True,
        is_new=True,
        reason=reason,
        message=message,
        expected_start=start,
        no_start=no_start,
        places=[Place(pod=f"p{at}", node_id=node) for at, node in enumerate(nodes)],
    )


WHAT_IF = Answer(
    done=True,
    sentence="1 application would start pods now: 3; 2 applications would wait.",
    starts=[outcome("mpi-next", 3, 3, nodes=("n2", "n3", "n2"))],
    waits=[
        outcome(
            "llm",
            8,
            0,
            reason="GANG_PLACES",
            message="there is room for at most 6 of its 8 members",
            start=1_767_225_600_000_000_000,
        ),
        outcome(
            "rag",
            2,
            0,
            reason="QUEUE_QUOTA",
            message="vcore: queue root.ml has 0 left",
            no_start="no expected start: 12 of 14 running pods state no run time",
        ),
    ],
    evicted=[
        Evicted(
            victim="3f2a",
            victim_name="spark-exec-7",
            application_id="spark-pi",
            node_id="n2",
            winner="mpi-next",
            law="guarantee",
        ),
        Evicted(
            victim="77c0",
            victim_name="etl-3",
            application_id="etl",
            node_id="n1",
            winner="",
            law="quota",
        ),
    ],
    queues=[
        QueueOutcome(queue_name="root.new", change=QueueChange.COMES, applications=0, changed=[]),
        QueueOutcome(
            queue_name="root.etl",
            change=QueueChange.CHANGED,
            applications=12,
            changed=["resources.max", "resources.guaranteed", "limits of users"],
        ),
    ],
    refused=[Refused(document=2, field="spec", message="is missing")],
).model_dump(by_alias=True)


WHEN = When(
    application_id="llm",
    queue_name="root.ml",
    sentence="llm is expected to have started by 2026-01-01 00:00:00 UTC, and in nine of ten cases "
    "by 2026-01-01 02:30:00 UTC.",
    waiting=8,
    expected_start=1_767_225_600_000_000_000,
    latest_start=1_767_234_600_000_000_000,
).model_dump(by_alias=True)


def trace():
    """Return the trace of a gang whose placeholders time out: ids, causes, who, when, what."""
    milli, stories = 1_000_000, Stories()
    armed = "to timers: 1 placeholder timer armed"
    refused = "1 updated application Accepted, 8 scheduling states FAILED"
    told = [
        ("s", "", "SubmitManifests", "api", "shim_adapter", 0, 2, 3, "",
         "to core: 1 new application", ""),
        ("u", "s", "UpdateRequest", "shim_adapter", "core", 5, 4, 1, "1 new application", "", ""),
        ("d", "u", "decision", "core", "core", 10, 0, 1, "",
         f"to shim_adapter: {refused}; {armed}", WHY_GANG),
        ("r", "d", "UpdateResponse", "core", "shim_adapter", 11, 7, 2, refused, "", WHY_GANG),
        ("t", "d", "TimerOrders", "core", "timers", 11, 3, 1, "1 placeholder timer armed", "", ""),
        ("f", "t", "Tick", "clock", "timers", 900_000, 0, 1, "", "to core: 1 placeholder timer fired",
         ""),
        ("g", "f", "TimerFirings", "timers", "core", 900_001, 15, 1, "1 placeholder timer fired", "",
         ""),
        ("e", "g", "decision", "core", "core", 900_017, 0, 3, "",
         "to shim_adapter: 8 released asks TIMEOUT", "placeholder timeout"),
    ]  # fmt: skip
    start = 1_767_225_600_000 * milli
    for step, cause, kind, source, to, at, queued, handled, contents, decision, reason in told:
        times = (start + at * milli, queued * milli, handled * milli)
        said = (("mpi-next",), (contents,), (decision,), (reason,))
        record = TraceRecord(step, cause, "mpi-next", "", kind, source, to, *times, *said)
        stories.remember(record)
    return trace_entries(stories.of("mpi-next"), "mpi-next")
