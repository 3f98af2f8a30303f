"""YuniKorn's service keys: the ConfigMap keys besides the queues, and its environment variables.

A key is either used, or reported to have no effect, with Muster's substitute. If YuniKorn cannot
parse a value, it ignores the whole update (``unreadable``). The core passes all service keys on,
and REST shows them (``is_handed_on``).

Source: docs/rules/configuration.md#service-keys.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from shared.model.duration import parse_go_duration
from shared.model.numbers import parse_int64
from shared.model.texts import parse_truth

PREFIXES = ("service.", "kubernetes.", "health.", "log.", "event.", "admissionController.")
_SHOWN = 60  # characters of a value
_Rule = tuple[Callable[[str], object], str]

_DURATION: _Rule = (parse_go_duration, "a duration such as 1s")
_TRUTH: _Rule = (parse_truth, "true or false")
_NUMBER: _Rule = (parse_int64, "a whole number")
_AT_ONCE = "Muster decides with each message, not at intervals"
_UNBOUNDED = "the inboxes of the broker have limits of their own"
BY_ENVIRONMENT = "MUSTER_LOG_LEVEL sets it, for each service"
_PACED = "Muster paces its requests by what the API server answers"
_PARSED = {
    "service.schedulingInterval": _DURATION,
    "service.volumeBindTimeout": _DURATION,
    "service.dispatchTimeout": _DURATION,
    "service.eventChannelCapacity": _NUMBER,
    "service.disableGangScheduling": _TRUTH,
    "service.enableConfigHotRefresh": _TRUTH,
    "service.enableDRA": _TRUTH,
    "service.placeholderRunAsUser": _NUMBER,
    "service.placeholderRunAsGroup": _NUMBER,
    "service.placeholderFsGroup": _NUMBER,
    "kubernetes.qps": _NUMBER,
    "kubernetes.burst": _NUMBER,
}
_READ = (
    "service.policyGroup",
    "service.placeholderImage",
    "event.trackingEnabled",
    "event.ringBufferCapacity",
    "event.maxStreams",
    "event.maxStreamsPerHost",
    "event.RESTResponseSize",
)
UNUSED = {
    "service.clusterId": "MUSTER_CLUSTER_ID sets it",
    "service.schedulingInterval": _AT_ONCE,
    "service.volumeBindTimeout": "a pod whose volumes are not bound waits, and is tried again",
    "service.dispatchTimeout": _UNBOUNDED,
    "service.eventChannelCapacity": _UNBOUNDED,
    "service.enableDRA": "device claims are followed wherever the API server has them",
    "service.nodeInstanceTypeNodeLabelKey": "the instance type of every node is UNKNOWN",
    "kubernetes.qps": _PACED,
    "kubernetes.burst": _PACED,
    "health.checkInterval": "the health check is made for each answer",
    "event.requestCapacity": "events at pods have a limit of their own",
    "admissionController.webHook.amServiceName": "the manifests of the webhook name its Service",
    "admissionController.webHook.schedulerServiceAddress": "the webhook judges queues by itself",
}
_JUDGED_BY_THE_WEBHOOK = ("admissionController.filtering.", "admissionController.accessControl.")
ENVIRONMENT = {  # YuniKorn's environment variables, as keys of a ConfigMap
    "DISABLE_RESERVATION": ("muster.scheduler.reservations", "none"),
    "DISABLE_GANG_SCHEDULING": ("service.disableGangScheduling", "true"),
}


def is_handed_on(name: str) -> bool:
    """Whether a setting is a service key, which the core passes on without using it."""
    return name.startswith(PREFIXES)


def from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the ConfigMap keys that YuniKorn's environment variables correspond to."""
    return dict(
        set_ for name, set_ in ENVIRONMENT.items() if parse_truth(variables.get(name, "")) is True
    )


def unreadable(keys: Mapping[str, str]) -> list[str]:
    """Return a sentence for each key whose value YuniKorn could not parse; "" is valid."""
    return [
        f"{name}: {expected} is expected, found {keys[name][:_SHOWN]!r}"
        for name, (parse, expected) in _PARSED.items()
        if keys.get(name) and parse(keys[name]) is None
    ]


@lru_cache(maxsize=8)
def service_warnings(pairs: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return a sentence for each service key that is invalid, without effect, or unknown."""
    keys = {name: text for name, text in pairs if is_handed_on(name)}
    without = [sentence for name in keys if (sentence := _without_effect(name))]
    wrong = [f"{sentence}; the default holds" for sentence in unreadable(keys)]
    return (*wrong, *without)


def _without_effect(name: str) -> str:
    """Return why a key has no effect, "" if it has one."""
    if name in UNUSED:
        return f"{name} has no effect: {UNUSED[name]}"
    if name.startswith("log."):
        return f"{name} has no effect: {BY_ENVIRONMENT}"
    if name in _PARSED or name in _READ or name.startswith(_JUDGED_BY_THE_WEBHOOK):
        return ""
    return f"there is no key {name[:_SHOWN]!r}"
