"""Which service may send which kind of message to which inbox.

The AsyncAPI document and the broker permissions are derived from it (``shared.bus.permissions``).
"""

CORE, SHIM, TIMERS, API = SERVICES = ("core", "shim_adapter", "timers", "api")
ANY_REPLICA = "api.<instance>"
ANY_CORE, ANY_TIMERS = "core.<partition>", "timers.<partition>"
SENDERS: dict[str, dict[str, tuple[str, ...]]] = {  # by inbox and kind
    ANY_CORE: {
        "Heartbeat": (CORE,),
        "SyncBegin": (SHIM,),
        "UpdateRequest": (SHIM,),
        "SyncEnd": (SHIM,),
        "UpdateConfiguration": (SHIM,),
        "TimerFirings": (TIMERS,),
        "TimerSyncRequest": (TIMERS,),
        "SnapshotRequest": (API,),
        "ContinueCycle": (CORE,),
        "WhatIf": (API, SHIM),
        "ReplayDeadLetters": (API,),
    },
    "shim_adapter.default": {
        "Heartbeat": (SHIM,),
        "SyncRequest": (CORE, SHIM),
        "PartitionsRequest": (CORE, TIMERS, API),
        "UpdateResponse": (CORE,),
        "ConfigurationResult": (CORE,),
        "SubmitManifests": (API,),
        "DeleteManifests": (API,),
        "SubmitApplication": (API,),
        "SubmitPods": (API,),
        "PlaceForeignPods": (API,),
        "DeletePods": (API,),
        "DeleteApplication": (API,),
        "ChangeNodes": (API,),
        "HoldConfirmations": (API,),
        "UpdateConfiguration": (API, SHIM),
        "WhatIf": (API,),
        "FindPod": (API,),
        "ReplayDeadLetters": (API,),
    },
    ANY_TIMERS: {
        "Heartbeat": (TIMERS,),
        "TimerOrders": (CORE,),
        "ReplayDeadLetters": (API,),
    },
    "core_members.all": {"Partitions": (SHIM,), "PartitionsHeld": (CORE,)},
    "timers_members.all": {"Partitions": (SHIM,), "PartitionsHeld": (TIMERS,)},
    "api.all": {"StateDelta": (CORE,), "Partitions": (SHIM,), "AtWork": (CORE, SHIM, TIMERS)},
    "api.trace": {"TraceRecords": SERVICES},
    ANY_REPLICA: {
        "Heartbeat": (API,),
        "StateDelta": (CORE,),
        "SubmitResult": (SHIM,),
        "CommandResult": (SHIM,),
        "PodFound": (SHIM,),
        "Forecast": (CORE, SHIM),
        "DeadLettersReplayed": (CORE, SHIM, TIMERS),
    },
}

_ANY = {"api": ANY_REPLICA, "core": ANY_CORE, "timers": ANY_TIMERS}


def may_send(service: str, inbox: str, kind: str) -> bool:
    """Whether a service may send a kind of message to an inbox, all by name."""
    any_of = _ANY.get(inbox.partition(".")[0], "")
    return service in (SENDERS.get(inbox) or SENDERS.get(any_of, {})).get(kind, ())
