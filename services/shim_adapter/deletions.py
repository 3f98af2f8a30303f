"""Finds the pods to delete for a manifest, by application.

An application with no other pods is deleted as a whole, with its placeholders; of any other only
these pods are deleted.
"""

from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationRecord, PodRecord
from shared.messages.commands import PodName, PodSpec

NOT_THERE = "it has no pods: it was never submitted, or they are gone"


def pods_there(world: World, specs: tuple[PodSpec, ...]) -> list[PodRecord]:
    """Return the existing pods of these names, in order, whoever created them, as kubectl does."""
    found = (world.pod_named(spec.namespace, spec.name) for spec in specs)
    return [pod for pod in found if pod is not None]


def by_application(
    world: World, pods: list[PodRecord]
) -> list[tuple[ApplicationRecord | None, tuple[PodName, ...]]]:
    """Return each application to delete, or None, with the names of its pods to delete."""
    groups: dict[str, list[PodRecord]] = {}
    for pod in pods:
        groups.setdefault(pod.spec.application_id, []).append(pod)
    found: list[tuple[ApplicationRecord | None, tuple[PodName, ...]]] = []
    for application_id, group in groups.items():
        going = {pod.uid for pod in group}
        stay = [
            pod
            for pod in world.pods_of(application_id)
            if not (pod.uid in going or pod.has_ended or pod.deletion_ns or pod.spec.placeholder)
        ]
        names = tuple(PodName(pod.spec.name, pod.spec.namespace) for pod in group)
        found.append((None if stay else world.applications.get(application_id), names))
    return found
