"""The registry of kinds: every message that may be on a bus, by name."""

from shared.messages import (
    commands,
    dead_letters,
    find_pod,
    interface,
    protocol,
    state,
    trace,
    what_if,
)

KINDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        interface.UpdateRequest,
        interface.UpdateResponse,
        interface.UpdateConfiguration,
        interface.ConfigurationResult,
        protocol.Heartbeat,
        protocol.AtWork,
        protocol.SyncRequest,
        protocol.SyncBegin,
        protocol.SyncEnd,
        protocol.Partitions,
        protocol.PartitionsRequest,
        protocol.PartitionsHeld,
        protocol.ContinueCycle,
        protocol.TimerOrders,
        protocol.TimerFirings,
        protocol.TimerSyncRequest,
        state.StateDelta,
        state.SnapshotRequest,
        commands.SubmitManifests,
        commands.DeleteManifests,
        commands.SubmitResult,
        commands.SubmitApplication,
        commands.SubmitPods,
        commands.PlaceForeignPods,
        commands.DeletePods,
        commands.DeleteApplication,
        commands.ChangeNodes,
        commands.HoldConfirmations,
        commands.CommandResult,
        trace.TraceRecords,
        find_pod.FindPod,
        find_pod.PodFound,
        what_if.WhatIf,
        what_if.Forecast,
        dead_letters.ReplayDeadLetters,
        dead_letters.DeadLettersReplayed,
    )
}

# Kinds that report item by item: they may be merged and split. Commands and their
# answers are atomic, and never merged or split.
STREAMED: tuple[type, ...] = (
    interface.UpdateRequest,
    interface.UpdateResponse,
    protocol.TimerOrders,
    protocol.TimerFirings,
    state.StateDelta,
    trace.TraceRecords,
)
