"""Validates changes of the ConfigMaps.

YuniKorn asks its scheduler and allows everything when the scheduler does not answer. Here the rules
(`shared.queueconfig`) are checked in the webhook itself, so that every change is checked.
Pure. Source: docs/rules/queues.md#where-it-comes-from and docs/rules/configuration.md.
"""

from collections.abc import Mapping
from typing import Any

from services.shim_adapter.admission.decision import Verdict, mapping, optional
from services.shim_adapter.admission.filters import wrong_in
from services.shim_adapter.backends.kubernetes.configuration import MAPS, Configuration
from services.shim_adapter.backends.kubernetes.objects import config_data
from shared.model.service_keys import unreadable
from shared.queueconfig import QueueConfigError, load_schedulable

_ALLOWED = Verdict()

Maps = Mapping[str, Mapping[str, str]]


def judge(request: Mapping[str, Any], namespace: str, maps: Maps) -> Verdict:
    """Return the verdict on a request for a ConfigMap; ``maps`` are the existing ones.

    Raises ValueError if it is not a valid request.
    """
    name, operation = request.get("name"), request.get("operation")
    if request.get("namespace") != namespace or name not in MAPS:
        return _ALLOWED
    if operation not in ("CREATE", "UPDATE"):
        return _ALLOWED
    body = mapping(request.get("object"), "request.object")
    for field in ("data", "binaryData"):
        optional(body.get(field), f"request.object.{field}")
    data = config_data(body)
    wrong = wrong_in(data) or unreadable(data) or _wrong_queues(maps, {**maps, str(name): data})
    said = f"ConfigMap {name} does not hold, nothing has changed: {'; '.join(wrong)}"
    return Verdict(is_allowed=False, message=said) if wrong else _ALLOWED


def _wrong_queues(before: Maps, after: Maps) -> list[str]:
    """Return the errors in the queues of all ConfigMaps together, if the queues change."""
    text = _queues(after)
    if text == _queues(before):
        return []
    try:
        load_schedulable(text)
    except QueueConfigError as error:
        return [f"queues.yaml {error}" if error.line else f"queues.yaml: {error}"]
    return []


def _queues(maps: Maps) -> str:
    configuration = Configuration()
    for name, data in maps.items():
        configuration.take(name, data)
    return configuration.queues
