"""A partition that the configuration has no more: what is in it comes to its end.

Source: docs/rules/applications.md#states (``PartitionRemoved``) and docs/rules/queues.md#reload.
An application that cannot fail in its state, because it is on its way out or gives its placeholders
back, is looked at again.
"""

from services.core.scheduler.actions import gang
from services.core.scheduler.queues.dynamic_queues import clean_later
from services.core.scheduler.statement.partition import Partition
from shared.model.states import ApplicationEvent, ApplicationState

PARTITION_REMOVED = "PartitionRemoved"
_MAY_FAIL = (ApplicationState.NEW, ApplicationState.ACCEPTED, ApplicationState.RUNNING)


def fail_all(partition: Partition) -> None:
    """Fail every application of a partition that was dropped; of any other, none."""
    if not partition.is_dropped:
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
