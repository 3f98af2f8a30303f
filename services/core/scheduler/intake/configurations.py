"""Applies a parsed configuration to the partition, as a whole or not at all."""

from services.core.scheduler.actions import gang, quota_preemption, removed_partition
from services.core.scheduler.queues.tree import PartitionConfig, configure, conflict
from services.core.scheduler.statement.partition import Partition


def take(partition: Partition, config: PartitionConfig) -> str:
    """Apply a configuration; return "" or the error, in which case the old one stays in use."""
    if config.checksum == partition.config_checksum:
        if partition.config_error:
            partition.configure(config_error="")
        return ""
    error = conflict(partition, config)
    if error:
        return error
    had_quota_preemption = partition.quota_preemption_enabled
    configure(partition, config)
    gang.withdraw_over_maxima(partition)
    partition.waiting_gangs.rank_again()
    if had_quota_preemption or partition.quota_preemption_enabled:
        for queue in partition.queues.values():
            quota_preemption.max_changed(partition, queue)
    if partition.hooks is not None:
        partition.hooks.moves += 1
    removed_partition.fail_all(partition)
    return ""
