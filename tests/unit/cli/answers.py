"""Answers of an API as it gives them: what the tables of these tests are made of."""

WHY_GANG = (
    "the whole gang does not fit: vcore: queue root.ml has 15000 of 64000 left, requested 32000 "
    "(all of it: map[memory:68719476736 pods:8 vcore:32000])"
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
