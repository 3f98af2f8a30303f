"""YuniKorn's service keys: each is read, or it is said that it has no effect, and why."""

from shared.model.service_keys import UNUSED, is_handed_on, service_warnings, unreadable
from tests.table import each_row

READ = (
    "service.policyGroup", "service.disableGangScheduling", "service.enableConfigHotRefresh",
    "service.placeholderImage", "service.placeholderRunAsUser", "service.placeholderRunAsGroup",
    "service.placeholderFsGroup", "event.trackingEnabled", "event.ringBufferCapacity",
    "event.maxStreams", "event.maxStreamsPerHost", "event.RESTResponseSize",
    "admissionController.filtering.bypassNamespaces", "admissionController.accessControl.bypassAuth",
)  # fmt: skip


@each_row("name", READ)
def test_what_is_read_is_not_warned_of(name):
    assert is_handed_on(name)
    assert service_warnings(((name, ""),)) == ()


@each_row("name", [*UNUSED, "log.level", "log.shim.context.level"])
def test_what_has_no_effect_says_so(name):
    (warning,) = service_warnings(((name, ""), ("preset", "yunikorn")))
    assert warning.startswith(f"{name} has no effect: ")


@each_row("name", ["service.instanceTypeNodeLabelKey", "event.ringbufferCapacity", "health.x"])
def test_a_name_that_there_is_not_is_named(name):
    assert service_warnings(((name, "1"),)) == (f"there is no key {name!r}",)


def test_a_value_that_cannot_be_read_is_named_with_what_is_expected():
    keys = {"service.dispatchTimeout": "soon", "kubernetes.qps": "10", "service.enableDRA": "TRUE"}
    said = "service.dispatchTimeout: a duration such as 1s is expected, found 'soon'"
    assert unreadable(keys) == [said]
    assert service_warnings(tuple(keys.items()))[0] == f"{said}; the default holds"
