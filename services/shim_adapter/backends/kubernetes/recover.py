"""From the pods that are there to the applications they belong to, and how far each is.

The resource manager is the truth: nothing but pods survives a restart. An application is what its
first pod says it is, real pods before placeholders. How far its gang is follows from its pods when
the core has accepted it (``BoundPlaceholders.has_started``). Source:
docs/rules/gangs.md#the-course.
"""

from services.shim_adapter.backends.kubernetes.configuration import Configuration
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationRecord, PodRecord
from shared.model.units import milliseconds


def applications(world: World, configuration: Configuration, now_ns: int) -> None:
    """Make an application for every pod of ours that has not ended and may be scheduled."""
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
