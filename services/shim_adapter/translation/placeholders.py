"""Placeholder pods: what holds a gang member's place until the real pod takes it.

Source: docs/rules/gangs.md#placeholder-pods. The ten last characters of the name are derived from
the application and the index instead of drawn, so that making them again makes the same pods.
"""

from services.shim_adapter.records import ApplicationRecord
from services.shim_adapter.translation.pods import APP_ID, QUEUE
from services.shim_adapter.translation.task_groups import TASK_GROUP_NAME
from shared.messages.commands import PodSpec, TaskGroupSpec
from shared.model.ids import derived_suffix
from shared.model.names import DEFAULT_PARTITION, PARTITION
from shared.model.resources import PODS

PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
_MAX_APPLICATION = 28
_MAX_GROUP = 20
_NONCE = 10


def placeholder_name(application_id: str, group: str, cause: str) -> str:
    """Return a placeholder's name: ``tg-<app>-<group>-<10 characters>``, at most 63 long.

    A dot at which a part is cut goes, too: no name may have one before a dash.
    """
    nonce = derived_suffix(cause, _NONCE)
    application, name = application_id[:_MAX_APPLICATION], group[:_MAX_GROUP]
    return f"tg-{application.rstrip('.')}-{name.rstrip('.')}-{nonce}"


def _partition(partition: str) -> dict[str, str]:
    """Return the annotation that names a partition; the default one needs none."""
    return {} if partition == DEFAULT_PARTITION else {PARTITION: partition}


def placeholder_pod(application: ApplicationRecord, group: TaskGroupSpec, cause: str) -> PodSpec:
    """Return the pod that holds one member's place; it runs until it is deleted."""
    return PodSpec(
        name=placeholder_name(application.application_id, group.name, cause),
        application_id=application.application_id,
        resource={**group.min_resource, PODS: 1},
        namespace=application.namespace,
        queue_name=application.queue_name,
        user=application.user,
        groups=application.groups,
        task_group_name=group.name,
        placeholder=True,
        priority=application.priority,
        constraints=group.constraints,
        labels={
            **group.labels,
            APP_ID: application.application_id,
            QUEUE: application.queue_name,
        },
        annotations={
            **group.annotations,
            **application.gang_annotations,
            PLACEHOLDER: "true",
            TASK_GROUP_NAME: group.name,
            **_partition(application.partition),
        },
        priority_class=application.priority_class,
        partition=application.partition,
    )
