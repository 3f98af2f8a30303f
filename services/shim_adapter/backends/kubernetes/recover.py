"""Rebuilds applications and their progress from existing pods, after a restart.

Only pods survive a restart. An application is defined by its first pod, real pods before
placeholders. Once the core has accepted it, the progress of its gang follows from its pods
(``BoundPlaceholders.has_started``). Source: docs/rules/gangs.md#the-course.
"""

from services.shim_adapter.backends.kubernetes.configuration import Configuration
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationRecord, PodRecord
from shared.model.units import milliseconds


def applications(world: World, configuration: Configuration, now_ns: int) -> None:
    """Create the application of every pod of ours that may be scheduled."""
    world.has_gangs = configuration.has_gangs
    pods = [pod for pod in world.all_pods() if not (pod.spec.foreign or pod.gates)]
    for pod in sorted(pods, key=_order):
        if pod.spec.application_id not in world.applications:
            world.application_of(pod)
    for application in world.applications.values():
        _take_up(world, application, now_ns)


def _order(pod: PodRecord) -> tuple[bool, int, str, str]:
    return (pod.spec.placeholder, pod.created_ns, pod.spec.namespace, pod.spec.name)


def _take_up(world: World, application: ApplicationRecord, now_ns: int) -> None:
    """Infer the gang's phase from its pods: its reservation's start, or that it is over."""
    pods = world.pods_of(application.application_id)
    bound = [pod.bound_ns or pod.created_ns for pod in pods if pod.spec.placeholder and pod.node]
    application.reservation_start_ns = min(bound, default=0)
    is_late = now_ns > application.created_ns + milliseconds(application.placeholder_timeout_ms)
    has_placeholders = any(pod.spec.placeholder for pod in pods)
    runs = any(pod.node and not pod.spec.placeholder for pod in pods)
    if application.task_groups and is_late and not has_placeholders and not runs:
        application.is_gang_over = True
