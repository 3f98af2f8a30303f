"""Checks the limits of commands before anything is carried out.

Commands arrive over the bus, so their numbers are int64 and their texts can be encoded. Checked
here are the interface's tighter limits, and sizes that could not be sent.
"""

from services.shim_adapter.backends.base import CommandRefusedError
from services.shim_adapter.translation.bounds import check_application, check_pod
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.task_groups import check_gang
from shared.messages.commands import PlaceForeignPods, PodSpec, SubmitApplication, SubmitPods
from shared.model.names import MAX_APPLICATION_ID_BYTES, NOT_ASKABLE, is_askable
from shared.model.numbers import INT32
from shared.model.resources import is_negative


def check_command(command: object) -> None:
    """Check a command. Raises CommandRefusedError, TaskGroupsError."""
    try:
        match command:
            case SubmitApplication():
                _check_application(command)
            case SubmitPods() | PlaceForeignPods():
                for pod in command.pods:
                    _check_pod(pod)
            case _:
                pass
    except ManifestError as error:
        raise CommandRefusedError(str(error)) from error


def _check_application(wanted: SubmitApplication) -> None:
    _check_id(wanted.application_id)
    owners = (wanted.user, *wanted.groups)
    names = (wanted.queue_name, wanted.partition, wanted.namespace, *owners)
    check_application(wanted.tags, names)
    for group in wanted.task_groups:
        if group.min_member < 1 or is_negative(group.min_resource):
            rule = "minMember must be 1 or more, and no minResource negative"
            raise CommandRefusedError(f"task group {group.name!r}: {rule}")
    check_gang(wanted.task_groups)


def _check_pod(pod: PodSpec) -> None:
    _check_id(pod.application_id)
    if pod.priority not in INT32:
        raise CommandRefusedError(
            f'pods "{pod.name}": the priority is a 32-bit whole number, found {pod.priority}'
        )
    check_pod(pod, f'pods "{pod.name}"')


def _check_id(application_id: str) -> None:
    size = len(application_id.encode())
    if size > MAX_APPLICATION_ID_BYTES:
        raise CommandRefusedError(
            f"an application's ID has at most {MAX_APPLICATION_ID_BYTES} bytes, found {size}: "
            f"{application_id[:MAX_APPLICATION_ID_BYTES]}…"
        )
    if application_id and not is_askable(application_id):
        raise CommandRefusedError(f"an application's ID {NOT_ASKABLE}, found {application_id!r}")
