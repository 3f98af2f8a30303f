"""What the API server says, read: pods, nodes, ConfigMaps; and what is sent, written."""

import base64
import gzip
import json
import tracemalloc
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.shim_adapter.backends.kubernetes import bodies
from services.shim_adapter.backends.kubernetes.claim_objects import PodClaim
from services.shim_adapter.backends.kubernetes.configuration import (
    AT_START,
    BUILT_IN,
    Configuration,
    settings_of_environment,
)
from services.shim_adapter.backends.kubernetes.objects import (
    config_data,
    node_record,
    pod_view,
    time_ns,
)
from services.shim_adapter.backends.kubernetes.packed import MAX_CONFIG_BYTES, packed
from services.shim_adapter.backends.kubernetes.turn import (
    LAST_GOOD,
    MAX_KEPT_USAGE,
    USAGE,
    Turn,
)
from services.shim_adapter.records import PodPhase, PodRecord, ReportedUsage
from services.shim_adapter.translation.pods import PriorityClass, Reading
from shared.messages.commands import PodSpec
from shared.messages.constraints import ALL_NAMESPACES, HostPort, Requirement
from shared.messages.interface import UsageRecord
from shared.model.service_keys import from_environment
from tests.table import each_row
from tests.unit.shim_adapter.test_workloads import JUNK, places

READING = Reading(("yunikorn",), 0, {"low": PriorityClass(3, "false")})


def raw(name="p", *, scheduler="yunikorn", node="", **more):
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    spec = {"schedulerName": scheduler, "containers": [container], **more}
    if node:
        spec["nodeName"] = node
    metadata = {
        "name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {"a": "b"},
        "creationTimestamp": "2026-01-01T00:00:10Z",
    }  # fmt: skip
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def view(body, known=False):
    return pod_view(body, READING, lambda uid: known)


def test_a_pod_of_ours_is_read_whole_the_first_time_and_then_only_what_may_change():
    body = raw(priorityClassName="low", priority=3, imagePullSecrets=[{"name": "s"}])
    first = view(body)
    assert (first.is_ours, first.uid, first.spec.application_id) == (
        True,
        "uid-p",
        "yunikorn-ns-autogen",
    )
    assert (first.spec.priority, first.spec.allow_preempt_self) == (3, False)
    assert first.spec.pull_secrets == ("s",)
    assert first.created_ns == 1_767_225_610 * 10**9
    again = view(body, known=True)
    assert again.spec is None
    assert again.resource == {"vcore": 1000, "pods": 1}


def test_a_resize_counts_the_larger_of_what_is_asked_and_what_is_held():
    body = raw(node="n")
    held = {
        "name": "c",
        "allocatedResources": {"cpu": "2"},
        "resources": {"requests": {"cpu": "3"}},
    }
    body["status"] = {"phase": "Running", "containerStatuses": [held]}
    assert view(body, known=True).resource == {"vcore": 3000, "pods": 1}
    held["allocatedResources"] = held["resources"]["requests"] = {"cpu": "500m"}
    assert view(body, known=True).resource == {"vcore": 1000, "pods": 1}


INFEASIBLE = {
    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
}
DEFERRED = {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}
IN_PROGRESS = {"conditions": [{"type": "PodResizeInProgress", "status": "True"}]}
NO_LONGER = {
    "conditions": [{"type": "PodResizePending", "status": "False", "reason": "Infeasible"}]
}


@each_row("scheduler", ["yunikorn", "default-scheduler"])
@each_row("place", ["container", "sidecar", "pod"])
@each_row(
    ("resize", "wanted", "allocated", "actual", "counted"),
    [
        ({}, 8, 2, 2, 8),  # proposed: the kubelet has not seen it
        ({"resize": "Proposed"}, 8, 2, 2, 8),
        ({"resize": "Deferred"}, 8, 2, 2, 8),
        (DEFERRED, 8, 2, 2, 8),
        ({"resize": "Infeasible"}, 8, 2, 2, 2),
        (INFEASIBLE, 8, 2, 2, 2),
        (INFEASIBLE, 8, 2, 3, 3),  # an earlier one is still being carried out
        (INFEASIBLE, 1, 4, 4, 4),
        (NO_LONGER, 8, 2, 2, 8),
        ({"resize": "InProgress"}, 8, 8, 2, 8),
        (IN_PROGRESS, 8, 8, 2, 8),
        (IN_PROGRESS, 1, 1, 4, 4),  # it shrinks, and holds what it had
        ({"resize": ""}, 8, 8, 8, 8),  # done
    ],
)
def test_a_resize_that_is_infeasible_counts_with_what_is_allocated_and_any_other_with_its_wish(
    scheduler, place, resize, wanted, allocated, actual, counted
):
    asks = {"resources": {"requests": {"cpu": wanted, "memory": 64, "nvidia.com/gpu": 1}}}
    has = {
        "allocatedResources": {"cpu": allocated, "memory": 64, "nvidia.com/gpu": 1},
        "resources": {"requests": {"cpu": actual, "memory": 64}},
    }
    nothing = {"containers": [{"name": "c"}]}
    if place == "container":
        body = raw(scheduler=scheduler, node="n", containers=[{"name": "c", **asks}])
        body["status"]["containerStatuses"] = [{"name": "c", **has}]
    elif place == "sidecar":
        sidecar = {"name": "s", "restartPolicy": "Always", **asks}
        body = raw(scheduler=scheduler, node="n", initContainers=[sidecar], **nothing)
        body["status"]["initContainerStatuses"] = [{"name": "s", **has}]
    else:
        body = raw(scheduler=scheduler, node="n", **nothing, **asks)
        body["status"] |= has
    body["status"] |= {"phase": "Running", **resize}
    amounts = {"vcore": counted * 1000, "memory": 64, "nvidia.com/gpu": 1, "pods": 1}
    assert view(body, known=True).resource == amounts
    assert view(body).spec.resource == amounts


def test_an_infeasible_resize_of_a_container_without_a_status_counts_with_what_is_asked():
    body = raw(node="n")
    body["status"] = {"phase": "Running", **INFEASIBLE, "containerStatuses": [{"name": "c"}]}
    assert view(body, known=True).resource == {"vcore": 1000, "pods": 1}


def test_an_infeasible_resize_takes_nothing_away_that_cannot_be_resized():
    body = raw(node="n")
    requests = {"cpu": "8", "memory": "1Gi", "nvidia.com/gpu": 2}
    body["spec"]["containers"][0]["resources"]["requests"] = requests
    held = {"name": "c", "allocatedResources": {"cpu": "2"}}  # it had no memory
    body["status"] = {"phase": "Running", **INFEASIBLE, "containerStatuses": [held]}
    found = view(body, known=True).resource
    assert found == {"vcore": 2000, "nvidia.com/gpu": 2, "pods": 1}


@pytest.mark.parametrize(
    ("owners", "kind"),
    [([{"kind": "Node"}], "static"), ([{"kind": "ReplicaSet"}], "default"), ([], "default")],
)
def test_f_07_a_foreign_pod_is_static_if_its_node_owns_it(owners, kind):
    body = raw(scheduler="default-scheduler", node="n1", priority=7)
    body["metadata"]["ownerReferences"] = owners
    seen = view(body)
    assert (seen.spec.foreign, seen.spec.application_id, seen.spec.priority) == (kind, "", 7)


def test_of_a_foreign_pod_only_what_keeps_ours_away_is_kept():
    body = raw(
        scheduler="x", node="n1", nodeSelector={"a": "b"}, tolerations=[{"operator": "Exists"}]
    )
    body["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    constraints = view(body).spec.constraints
    assert constraints.host_ports == (HostPort(8080),)
    assert constraints.node_selector == ()


def test_a_sidecars_port_of_the_node_is_taken_as_a_containers_is_and_an_init_containers_is_not():
    ports = [{"hostPort": 8080}]
    starters = [
        {"name": "s", "restartPolicy": "Always", "ports": ports},
        {"name": "i", "ports": [{"hostPort": 9090}]},
    ]
    for scheduler in ("x", "yunikorn"):
        seen = view(raw(scheduler=scheduler, node="n1", initContainers=starters))
        assert seen.spec.constraints.host_ports == (HostPort(8080),)


def repels(*terms, **more):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [*terms], **more}
    body = raw(scheduler="x", node="n1", affinity={"podAntiAffinity": required})
    body["metadata"]["labels"] = {"app": "a", "version": "2"}
    body["spec"]["containers"][0]["ports"] = [{"hostPort": 8080}]
    constraints = view(body).spec.constraints
    assert constraints.host_ports == (HostPort(8080),)  # whatever else it says
    return constraints.pod_anti_affinity


def test_a_foreign_pods_terms_count_one_by_one_and_at_the_most_where_they_are_not_understood():
    apart = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "a"}}}
    (plain,) = repels(apart)
    assert (plain.topology_key, plain.namespaces) == ("host", ())
    by_labels = {**apart, "namespaceSelector": {"matchLabels": {"team": "x"}}}
    assert repels(by_labels, apart) == (replace(plain, namespaces=(ALL_NAMESPACES,)), plain)
    bad = {"weight": 900, "podAffinityTerm": {}}
    assert repels(apart, preferredDuringSchedulingIgnoredDuringExecution=[bad]) == (plain,)
    (own,) = repels({**apart, "matchLabelKeys": ["version", "none"]})
    assert own.selector == (*plain.selector, Requirement("version", "In", ("2",)))


def test_a_sidecar_that_is_being_resized_counts_with_what_it_has():
    starters = [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "i", "resources": {"requests": {"cpu": "1"}}},
    ]
    body = raw(initContainers=starters)
    body["status"]["initContainerStatuses"] = [
        {"name": "s", "resources": {"requests": {"cpu": "3"}}},
        {"name": "i", "allocatedResources": {"cpu": "9"}},
    ]
    assert view(body).resource["vcore"] == 4000


def test_a_pod_that_is_being_resized_as_a_whole_counts_with_what_it_has():
    body = raw(resources={"requests": {"cpu": "2"}})
    body["status"] |= {"allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "5"}}}
    assert view(body).resource["vcore"] == 5000
    del body["spec"]["resources"]
    assert view(body).resource["vcore"] == 1000  # then only its containers count


def test_a_node_that_is_being_deleted_takes_no_new_pods():
    node = {"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert node_record(node).is_cordoned


def test_the_claims_of_a_pod_are_those_that_it_names_and_those_that_were_made_for_it():
    entries = [
        {"name": "gpu", "resourceClaimName": "mine"},
        {"name": "nic", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"},
    ]
    body = raw(resourceClaims=entries)
    made = [{"name": "nic", "resourceClaimName": "p-nic"}, {"name": "none"}]
    body["status"] = {"resourceClaimStatuses": made}
    seen = view(body)
    assert seen.device_claims.claims == (
        PodClaim("gpu", "mine"),
        PodClaim("nic", "p-nic", "t"),
    )
    assert seen.spec is not None


def test_a_pod_that_is_bound_and_cannot_be_read_still_takes_its_room():
    term = {
        "labelSelector": {},
        "topologyKey": "zone",
        "namespaceSelector": {"matchLabels": {"a": "b"}},
    }
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert "not supported yet" in view(raw(affinity=near)).error
    bound = view(raw(node="n", affinity=near))
    assert (bound.is_ours, bound.spec.foreign, bound.spec.resource["vcore"]) == (
        False,
        "default",
        1000,
    )


def test_the_admission_controllers_mark_becomes_the_pods_own_application():
    body = raw()
    body["metadata"]["labels"] = {"yunikorn.apache.org/app-id": "ns-uniqueautogen"}
    assert view(body).spec.application_id == "ns-uid-p"


def test_a_pod_without_an_application_may_get_one_of_its_own():
    unique = replace(READING, is_unique=True)
    body = raw()
    body["metadata"] |= {"namespace": "n" * 40, "uid": "0" * 36}
    seen = pod_view(body, unique, lambda uid: False)
    assert seen.spec.application_id == f"{'n' * 26}-{'0' * 36}"
    body["metadata"]["labels"] = {"applicationId": "mine"}
    assert pod_view(body, unique, lambda uid: False).spec.application_id == "mine"


def test_an_application_called_like_a_generated_one_keeps_its_name():
    body = raw()
    body["metadata"]["namespace"] = "ns"
    body["metadata"]["labels"] = {"yunikorn.apache.org/app-id": "yunikorn-ns-autogen"}
    seen = pod_view(body, replace(READING, is_unique=True), lambda uid: False)
    assert seen.spec.application_id == "yunikorn-ns-autogen"


def test_an_ended_pod_is_hardly_looked_at():
    body = raw(node="n")
    body["status"] = {"phase": "Succeeded"}
    seen = view(body)
    assert (seen.phase, seen.spec) == (PodPhase.SUCCEEDED, None)


@given(data=st.data())
def test_a_pod_with_junk_in_it_is_read_or_refused_and_breaks_nothing(data):
    body = raw(
        volumes=[{"name": "v"}], schedulingGates=[{"name": "g"}], affinity={"podAntiAffinity": {}},
        imagePullSecrets=[{"name": "s"}], scheduler=data.draw(st.sampled_from(["yunikorn", "x"])),
        node=data.draw(st.sampled_from(["", "n"])),
    )  # fmt: skip
    body["metadata"]["ownerReferences"] = [{"kind": "Node"}]
    body["metadata"]["annotations"] = {"yunikorn.apache.org/task-groups": "[]"}
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "x"}
    held = {"name": "c", "allocatedResources": {"cpu": "1"}}
    body["status"] |= {"conditions": [condition], "containerStatuses": [held]}
    *path, last = data.draw(
        st.sampled_from([p for p in places(body) if p[0] != "metadata" or len(p) > 2])
    )
    holder = body
    for key in path:
        holder = holder[key]
    holder[last] = deepcopy(data.draw(JUNK))
    seen = view(body)
    assert (
        seen.spec is not None or seen.error or seen.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
    )


def test_a_node_is_read_by_what_pods_may_use_of_it():
    body = {
        "metadata": {"name": "n", "labels": {"zone": "a"}},
        "spec": {
            "unschedulable": True,
            "taints": [
                {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
                {"key": "gpu", "value": "yes", "effect": "NoExecute"},
            ],
        },
        "status": {
            "allocatable": {"cpu": "1500m", "memory": "1Ki", "pods": "9"},
            "capacity": {"cpu": "4"},
        },
    }
    node = node_record(body)
    assert node.capacity == {"vcore": 1500, "memory": 1024, "pods": 9}
    assert [(t.key, t.value, t.effect) for t in node.taints] == [("gpu", "yes", "NoExecute")]
    assert node.is_cordoned
    assert node_record({"metadata": {"name": "n"}}).capacity == {}


def test_a_config_map_is_unpacked_where_it_is_packed():
    packed = base64.b64encode(gzip.compress(b"partitions: []")).decode()
    data = config_data(
        {"data": {"a": "b"}, "binaryData": {"queues.yaml.gz": packed, "bad.gz": "!"}}
    )
    assert data == {"a": "b", "queues.yaml": "partitions: []"}


def test_a_packed_key_is_read_as_far_as_its_limit_and_no_further():
    whole = gzip.compress(b"x" * (20 * MAX_CONFIG_BYTES))
    tracemalloc.start()
    data = config_data(
        {
            "binaryData": {
                "queues.yaml.gz": base64.b64encode(whole).decode(),
                "cut.gz": base64.b64encode(gzip.compress(b"short")[:-4]).decode(),
            }
        }
    )
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {key: len(text) for key, text in data.items()} == {"queues.yaml": MAX_CONFIG_BYTES}
    assert most < 4 * MAX_CONFIG_BYTES


class Leases:
    """The part of an API server that a turn asks: one Lease, with what is kept in it."""

    access = SimpleNamespace(namespace="muster")

    def __init__(self, kept):
        annotations = {"metadata": {"annotations": {LAST_GOOD: kept}}}
        self.lease = {**annotations, "spec": {"leaseTransitions": 4}}

    async def request(self, method, path, body=None):
        assert path.endswith("/namespaces/muster/leases/muster-shim-adapter")
        if method == "PUT":
            self.lease = body
        return self.lease


@pytest.mark.parametrize(
    ("kept", "last_good"),
    [
        ("", ""),
        (packed("partitions: []"), "partitions: []"),
        (base64.b64encode(gzip.compress(b"partitions: []")[:-4]).decode(), ""),
        ("no base64!", ""),
        (base64.b64encode(b"no gzip").decode(), ""),
        (base64.b64encode(gzip.compress(b"\xff")).decode(), ""),
        (packed("x" * (2 * MAX_CONFIG_BYTES)), "x" * MAX_CONFIG_BYTES),
    ],
    ids=["none", "whole", "cut short", "no base64", "no gzip", "no text", "too long: cut"],
)
async def test_a_turn_reads_what_was_kept_or_is_as_if_there_were_none(kept, last_good):
    leases = Leases(kept)
    turn = Turn(leases, "shim-1")
    await turn.take()
    assert (turn.number, leases.lease["spec"]["leaseTransitions"]) == (5, 5)
    assert turn.last_good == last_good


async def test_a_turn_keeps_usage_beside_the_queues_and_the_next_one_reads_it():
    leases = Leases(packed("partitions: []"))
    turn = Turn(leases, "shim-1")
    await turn.take()
    used = [
        ReportedUsage(
            "default", UsageRecord(f"root.q{at}", user, at, {"vcore": str(7 ** (at + 60))[-30:]})
        )
        for at in range(3_000)
        for user in ("", "ann")
    ]
    await turn.save_usage(used)
    assert len(leases.lease["metadata"]["annotations"][USAGE]) <= MAX_KEPT_USAGE
    later = Turn(leases, "shim-2")
    await later.take()
    assert later.last_good == "partitions: []"
    assert later.usage == tuple(each for each in used if not each.record.user)[-len(later.usage) :]
    assert len(later.usage) > 500
    leases.lease["metadata"]["annotations"][USAGE] = packed('[{"partition": 1}]')
    await later.take()
    assert later.usage == ()


def test_the_second_config_map_wins_key_by_key():
    configuration = Configuration()
    assert configuration.queues == BUILT_IN
    configuration.take(
        "yunikorn-defaults",
        {
            "queues.yaml": "a",
            "service.placeholderImage": "mine",
            "service.placeholderRunAsUser": "7",
        },
    )
    configuration.take("yunikorn-configs", {"queues.yaml": "b", "muster.scheduler.policy": "kai"})
    assert configuration.queues == "b"
    assert configuration.take_changed()
    assert not configuration.take_changed()
    kept = {"service.placeholderImage": "mine", "service.placeholderRunAsUser": "7"}
    assert configuration.scheduler_settings == {"policy": "kai", **kept}
    tracking = {"event.trackingEnabled": "false", "event.maxStreams": "3"}
    configuration.take("yunikorn-defaults", tracking)
    configuration.take("yunikorn-configs", {"queues.yaml": "b", "event.maxStreams": "4"})
    assert configuration.scheduler_settings == {**tracking, "event.maxStreams": "4"}
    assert configuration.take_changed()
    configuration.take(
        "yunikorn-defaults", {**tracking, "queues.yaml": "a", "service.placeholderImage": "mine",
        "service.placeholderRunAsUser": "7"},
    )  # fmt: skip
    assert configuration.take_changed()  # what is shown: nothing holds from a start yet
    assert (configuration.placeholders.image, configuration.placeholders.run_as_user) == ("mine", 7)
    configuration.take("yunikorn-configs", {"service.policyGroup": "other", "other.yaml": "c"})
    assert configuration.queues == "c"
    configuration.take("yunikorn-configs", None)
    assert configuration.queues == "a"


def test_hot_refresh_that_is_off_stays_off_until_a_restart():
    """docs/rules/configuration.md#service-keys: the update that turns it off is the last."""
    configuration = Configuration()
    configuration.take("yunikorn-configs", {"queues.yaml": "a"})
    configuration.begin()
    off = {"queues.yaml": "b", "service.enableConfigHotRefresh": "false"}
    configuration.take("yunikorn-configs", off)
    assert (configuration.take_changed(), configuration.queues) == (True, "b")
    configuration.take("yunikorn-configs", off)  # as a watch that begins anew lists it
    assert configuration.take_new_reasons() == []
    for text in ("false", "true"):
        on = {"queues.yaml": "c", "service.enableConfigHotRefresh": text}
        configuration.take("yunikorn-configs", on)
        assert (configuration.take_changed(), configuration.queues) == (False, "b")
    (why,) = configuration.take_new_reasons()
    assert why == "service.enableConfigHotRefresh is false: changes wait for a restart"
    assert configuration.take_new_reasons() == []


@each_row(
    ("key", "text"),
    [("service.schedulingInterval", "5"), ("service.volumeBindTimeout", "x"), ("service.dispatchTimeout", "1 s"), ("service.eventChannelCapacity", "1.5"), ("service.disableGangScheduling", "yes"), ("service.enableConfigHotRefresh", "off"), ("service.enableDRA", "no"), ("service.placeholderRunAsUser", "root"), ("kubernetes.qps", "many"), ("kubernetes.burst", "1e3")],
)  # fmt: skip
def test_a_service_key_that_cannot_be_read_has_the_whole_update_ignored(key, text):
    """docs/rules/configuration.md#service-keys: "makes the whole ConfigMap be ignored"."""
    configuration = Configuration()
    configuration.take("yunikorn-defaults", {"queues.yaml": "a"})
    configuration.begin()
    configuration.take("yunikorn-configs", {"queues.yaml": "b", key: text, "log.level": "DEBUG"})
    assert (configuration.take_changed(), configuration.queues) == (False, "a")
    assert configuration.scheduler_settings == {}
    (why,) = configuration.take_new_reasons()
    assert why.startswith(f"{key}: ")
    assert why.endswith(f"is expected, found {text!r}")
    assert configuration.take_new_reasons() == []
    configuration.take("yunikorn-configs", {"queues.yaml": "c", key: ""})
    assert (configuration.take_changed(), configuration.queues) == (True, "c")
    assert configuration.take_new_reasons() == []


def test_the_environment_of_yunikorn_comes_before_every_config_map():
    """yunikorn.md 2.11: DISABLE_RESERVATION; what a ConfigMap says of it wins."""
    off = {"DISABLE_RESERVATION": "true", "DISABLE_GANG_SCHEDULING": "1"}
    configuration = Configuration()
    configuration.take_environment(from_environment(off))
    assert configuration.scheduler_settings["reservations"] == "none"
    assert not configuration.has_gangs
    said = {"muster.scheduler.reservations": "asks", "service.disableGangScheduling": "false"}
    configuration.take("yunikorn-defaults", said)
    assert configuration.scheduler_settings["reservations"] == "asks"
    assert configuration.has_gangs
    assert settings_of_environment({"DISABLE_RESERVATION": "T"}) == {"reservations": "none"}
    assert settings_of_environment({"DISABLE_RESERVATION": "no", "PATH": "true"}) == {}


@each_row(
    ("text", "value"),
    [("true", True), ("True", True), ("TRUE", True), ("t", True), ("1", True), ("0", False), ("F", False), ("False", False), ("yes", None), ("", None)],
)  # fmt: skip
def test_switches_are_read_as_go_reads_them(text, value):
    """docs/rules/configuration.md#service-keys: ``True`` is no other word than ``true``; what is neither is the default."""
    keys = (
        "service.disableGangScheduling",
        "admissionController.filtering.generateUniqueAppId",
    )
    configuration = Configuration()
    configuration.take("yunikorn-configs", dict.fromkeys(keys, text))
    assert configuration.has_gangs is not (value is True)
    assert configuration.has_unique_applications is (value is True)
    if value is not None:
        configuration.begin()
        configuration.take("yunikorn-configs", {"service.enableConfigHotRefresh": text})
        configuration.take("yunikorn-configs", {"queues.yaml": "a"})
        assert (configuration.queues == "a") is value


def test_keys_that_need_a_restart_hold_from_the_start_and_their_changes_are_told_once():
    """docs/rules/configuration.md#service-keys: "restart needed, change ignored with a warning"."""
    configuration = Configuration()
    before = {"queues.yaml": "a", "other.yaml": "b", "service.placeholderImage": "mine"}
    configuration.take("yunikorn-configs", before)
    configuration.begin()
    assert configuration.take_ignored() == []
    after = {
        **before, "service.policyGroup": "other", "service.placeholderImage": "theirs",
        "service.placeholderRunAsUser": "7", "service.placeholderRunAsGroup": "7",
        "service.placeholderFsGroup": "7", "service.disableGangScheduling": "true",
    }  # fmt: skip
    configuration.take("yunikorn-configs", after)
    assert configuration.take_ignored() == [key for key in AT_START if after.get(key)]
    assert configuration.take_ignored() == []
    assert not configuration.take_changed()
    plain = bodies.PlaceholderOptions(image="mine")
    assert (configuration.queues, configuration.has_gangs) == ("a", True)
    assert configuration.placeholders == plain
    configuration.take("yunikorn-configs", {**before, "queues.yaml": "c"})
    assert (configuration.take_ignored(), configuration.take_changed()) == ([], True)
    configuration.take("yunikorn-configs", after)
    configuration.begin()
    assert (configuration.queues, configuration.has_gangs) == ("b", False)
    assert configuration.placeholders == bodies.PlaceholderOptions("theirs", 7, 7, 7)


def test_times_are_read_or_taken_for_none():
    assert time_ns("1970-01-01T00:00:01Z") == 10**9
    assert time_ns("2026-01-01T00:00:00.5+00:00") == 1_767_225_600 * 10**9
    assert (time_ns(None), time_ns("soon")) == (0, 0)


def test_a_placeholders_body_has_what_its_group_asks_of_nodes():
    group = {
        "Name": "tg", "minMember": 1, "minResource": {"cpu": 1}, "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k"}], "affinity": {"nodeAffinity": {}}, "topologySpreadConstraints": [],
    }  # fmt: skip
    annotations = {"yunikorn.apache.org/task-groups": json.dumps([{"name": "x"}, group])}
    spec = PodSpec(
        "tg-1",
        "app",
        {"vcore": 1000, "memory": 5, "pods": 1},
        task_group_name="tg",
        annotations=annotations,
    )
    options = bodies.PlaceholderOptions(run_as_user=1, run_as_group=2, fs_group=3)
    body = bodies.placeholder(spec, None, (), options)["spec"]
    assert (body["nodeSelector"], body["tolerations"]) == ({"a": "b"}, [{"key": "k"}])
    assert body["affinity"] == {"nodeAffinity": {}}
    assert "topologySpreadConstraints" not in body
    assert body["containers"][0]["resources"]["requests"] == {"cpu": "1000m", "memory": "5"}
    security = body["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"], security["fsGroup"]) == (1, 2, 3)
    assert "priorityClassName" not in body  # K-04: none where the originator has none


def test_an_event_is_cut_to_what_the_api_server_takes():
    pod = PodRecord("u", PodSpec("p", "a", {}), 1, 1)
    event = bodies.event(pod, "Reason", "x" * 2000, instance="i", now="t")
    assert len(event["note"]) == 1024
    assert event["regarding"]["uid"] == "u"


def test_what_thousands_of_pods_have_alike_is_kept_once():
    """As they are read from the wire: nothing of one is the other's yet."""
    bodies = [json.loads(json.dumps(raw(name, scheduler="x", node="n1"))) for name in "pq"]
    one, other = map(view, bodies)
    assert (one.spec.resource, one.spec.labels) == ({"vcore": 1000, "pods": 1}, {"a": "b"})
    for name in ("resource", "labels", "namespace"):
        assert getattr(one.spec, name) is getattr(other.spec, name)
    assert one.node is other.node
    bodies[0]["metadata"]["labels"] = {"a": ["b"]}
    assert view(bodies[0]).name == "p"
