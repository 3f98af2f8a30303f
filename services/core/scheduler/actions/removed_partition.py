"""A partition that was removed from the configuration: its applications fail.

Applications that cannot fail in their state, because they are ending or release their placeholders,
are tried again later.
Source: docs/rules/applications.md#states (``PartitionRemoved``) and docs/rules/queues.md#reload.
"""

from services.core.scheduler.actions import gang
from services.core.scheduler.queues.dynamic_queues import clean_later
from services.core.scheduler.statement.partition import Partition
from shared.model.states import ApplicationEvent, ApplicationState

PARTITION_REMOVED = "PartitionRemoved"
_MAY_FAIL = (ApplicationState.NEW, ApplicationState.ACCEPTED, ApplicationState.RUNNING)


def fail_all(partition: Partition) -> None:
    """Fail every application of a removed partition; do nothing for any other."""
    if not partition.is_removed:
        return
    for application in list(partition.applications.values()):
        if application.state in _MAY_FAIL:
            gang.stop(
                partition,
                application,
                ApplicationEvent.FAIL,
                PARTITION_REMOVED,
                f"partition {partition.name} was removed",
            )
    if partition.applications:
        clean_later(partition)
