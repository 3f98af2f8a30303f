"""Shares of GPUs at the border: KAI's annotations, and the one that says which devices were given."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.shim_adapter.backends.kubernetes import bodies
from services.shim_adapter.backends.kubernetes.gang_of_group import shape_of, task_groups_text
from services.shim_adapter.backends.kubernetes.objects import pod_view
from services.shim_adapter.backends.kubernetes.observed import PodSeen
from services.shim_adapter.backends.simulated import SimulatedCluster
from services.shim_adapter.mirror.asks import allocation_of, ask_of
from services.shim_adapter.mirror.calls import BindPod, BindRefused, PodBound
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationRecord, NodeRecord, PodRecord
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.gpu_shares import with_share
from services.shim_adapter.translation.placeholders import placeholder_pod
from services.shim_adapter.translation.task_groups import TaskGroupsError, parse_task_groups
from services.shim_adapter.translation.workloads.pod_groups import GroupRef
from shared.messages.commands import PodSpec
from shared.messages.constraints import NO_CONSTRAINTS
from shared.model.gpus import GPU, GPU_DEVICES, GPU_SHARE, devices_in, text_of
from tests.table import each_row
from tests.unit.shim_adapter.test_kubernetes_cluster import Session
from tests.unit.shim_adapter.test_kubernetes_objects import READING, raw


def shared(fraction="0.4", **more):
    body = raw(**more)
    body["metadata"]["annotations"] = {"gpu-fraction": fraction}
    return body


def view(body, known=False):
    return pod_view(body, READING, lambda uid: known)


@each_row(
    ("text", "size"),
    [("0.5", 500), ("0.001", 1), (".25", 250), ("0.999", 999), ("0.4000", 400), ("0.05", 50)],
)
def test_a_fraction_is_thousandths_of_one_device(text, size):
    assert with_share({"vcore": 1}, {"gpu-fraction": text}, "a") == (
        {"vcore": 1, GPU_SHARE: size},
        1,
    )


@each_row(
    "text",
    [
        "", "0", "0.0", "0.000", "1", "1.0", "1.5", "-0.5", "+0.5", "NaN", "inf", "1e-1", "0.0004",
        "0.3333", "1000000000", "0.5 ", "0,5", "0.\u0665", "9" * 5_000, "0." + "9" * 5_000,
        "0.5" + "0" * 5_000,
    ],
)  # fmt: skip
def test_what_is_no_share_of_one_device_is_refused(text):
    with pytest.raises(ManifestError) as refused:
        with_share({}, {"gpu-fraction": text}, "metadata.annotations")
    assert refused.value.field_path == "metadata.annotations[gpu-fraction]"
    assert "0.001 to 0.999" in refused.value.message
    assert len(refused.value.message) < 200


def test_a_share_may_be_of_several_devices():
    two = {"gpu-fraction": "0.4", "gpu-fraction-num-devices": "2"}
    assert with_share({}, two, "") == ({GPU_SHARE: 800}, 2)
    one = {"gpu-fraction": "0.4", "gpu-fraction-num-devices": "1"}
    assert with_share({}, one, "") == ({GPU_SHARE: 400}, 1)


@each_row("text", ["", "0", "65", "-1", "1.0", "two", "1" * 5_000, "2\n"])
def test_a_number_of_devices_that_cannot_be_is_refused(text):
    annotations = {"gpu-fraction": "0.4", "gpu-fraction-num-devices": text}
    with pytest.raises(ManifestError) as refused:
        with_share({}, annotations, "a")
    assert refused.value.field_path == "a[gpu-fraction-num-devices]"
    assert "1 to 64" in refused.value.message


@pytest.mark.parametrize(
    ("resource", "annotations", "sentence"),
    [
        ({GPU: 1}, {"gpu-fraction": "0.4"}, "asks for whole GPUs, too"),
        ({}, {"gpu-memory": "4096"}, "how much memory a GPU has is not known"),
        ({}, {"gpu-fraction-num-devices": "2"}, "gpu-fraction is missing"),
        ({GPU_SHARE: 400}, {}, "not as a resource"),
    ],
)
def test_what_contradicts_itself_is_refused(resource, annotations, sentence):
    with pytest.raises(ManifestError, match=sentence):
        with_share(resource, annotations, "")


def test_who_asks_for_no_share_is_as_before():
    spec = view(raw()).spec
    assert spec.constraints == NO_CONSTRAINTS
    assert GPU_SHARE not in spec.resource


# --- the devices that were given ------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.integers(0, 63), st.integers(1, 1000)), max_size=64, unique_by=lambda x: x[0]
    )
)
def test_devices_are_read_as_they_are_written(devices):
    devices = tuple(devices)
    assert devices_in(text_of(devices)) == devices


def test_devices_are_written_short():
    assert text_of(((0, 1000), (1, 1000))) == "0,1"
    assert text_of(((3, 400),)) == "3:400"


@each_row(
    "text", ["", "x", "1,", "1:", "1:0", "-1", "1:4:4", "1;2", "1" * 10_000, "0," * 5_000, "\u0663"]
)
def test_a_text_that_says_no_devices_says_nothing(text):
    assert devices_in(text) == ()


# --- Kubernetes -----------------------------------------------------------------------------------


def test_a_pod_of_the_api_server_has_its_share_the_first_time_and_whenever_it_is_seen_again():
    first, again = view(shared()), view(shared(), known=True)
    assert first.spec.resource == again.resource == first.resource
    assert first.resource[GPU_SHARE] == 400
    assert ask_of(PodRecord("u", first.spec, 1, 1), originator=False).resource_per_alloc[
        GPU_SHARE
    ] == 400  # fmt: skip


def test_a_pod_of_another_scheduler_is_counted_by_its_requests():
    assert GPU_SHARE not in view(shared(scheduler="kai-scheduler", node="n1")).resource


def test_a_share_that_cannot_be_is_told_to_the_pods_people():
    assert "0.001 to 0.999" in view(shared("7")).error


def test_the_bind_says_the_devices_and_who_starts_anew_reads_them_there():
    session = Session()
    session.world.nodes["n1"].capacity[GPU] = 2
    body = shared()
    session.see(PodSeen(view(body)))
    session.cluster.carry_out(BindPod("uid-p", "n1", ((1, 400),)), 5)
    (operation,) = (op for op in session.done if op.what == "bind")
    annotations = operation.body["metadata"]["annotations"]
    assert annotations == {GPU_DEVICES: "1:400"}
    body["metadata"]["annotations"] |= annotations
    body["spec"]["nodeName"] = "n1"
    other = Session()
    assert PodBound in other.see(PodSeen(view(body)))
    pod = other.world.pods["uid-p"]
    assert allocation_of(pod, originator=False, released=False).devices == ((1, 400),)


def test_devices_are_said_of_no_pod_that_waits():
    body = shared()
    body["metadata"]["annotations"][GPU_DEVICES] = "0:400"
    session = Session()
    session.see(PodSeen(view(body)))
    assert session.world.pods["uid-p"].devices == ()


def test_a_bind_without_devices_has_no_annotations():
    pod = PodRecord("u", PodSpec("p", "app", {"vcore": 1}), 1, 1)
    assert "annotations" not in bodies.binding(pod, "n1")["metadata"]


# --- gangs ----------------------------------------------------------------------------------------


def groups(annotations, resource=None):
    group = {
        "name": "tg", "minMember": 2, "minResource": resource or {"cpu": "1"},
        "annotations": annotations,
    }  # fmt: skip
    return parse_task_groups(json.dumps([group]))


def test_placeholders_have_the_share_of_their_group_and_ask_the_kubelet_for_none():
    (group,) = groups({"gpu-fraction": "0.3", "gpu-fraction-num-devices": "2"})
    spec = placeholder_pod(ApplicationRecord("app", 1), group, "cause")
    assert spec.resource == {"vcore": 1000, GPU_SHARE: 600, "pods": 1}
    assert spec.constraints.gpu_devices == 2
    body = bodies.placeholder(spec, None, (), bodies.PlaceholderOptions())
    assert body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1000m"}
    body["metadata"] |= {"uid": "ph", "creationTimestamp": None}
    body["spec"]["schedulerName"] = "yunikorn"
    assert view(body).spec.resource == spec.resource
    assert view(body).spec.constraints.gpu_devices == 2


@pytest.mark.parametrize(
    ("annotations", "resource"),
    [({"gpu-fraction": "2"}, None), ({}, {GPU_SHARE: "400"}), ({"gpu-memory": "1"}, None)],
)
def test_a_group_whose_share_does_not_hold_is_no_gang(annotations, resource):
    with pytest.raises(TaskGroupsError):
        groups(annotations, resource)


@pytest.mark.parametrize(("fraction", "count"), [("0.05", 1), ("0.333", 3)])
def test_the_gang_of_a_pod_group_has_the_shares_of_its_pods(fraction, count):
    body = shared(fraction)
    body["metadata"]["annotations"]["gpu-fraction-num-devices"] = str(count)
    spec = view(body).spec
    shape = shape_of(spec, "", "", GroupRef("kai", "ns", "group"))
    (group,) = parse_task_groups(task_groups_text({shape: 2}, {shape: ""}))
    assert group.min_resource[GPU_SHARE] == spec.resource[GPU_SHARE]
    assert group.constraints.gpu_devices == spec.constraints.gpu_devices == count


# --- the simulated cluster ------------------------------------------------------------------------


def simulated(*specs, gpus=2):
    cluster = SimulatedCluster(World())
    cluster.world.nodes["n1"] = NodeRecord("n1", {"vcore": 10, "pods": 10, GPU: gpus})
    cluster.create_pods(specs, "c", 1)
    return cluster, [pod.uid for pod in cluster.world.all_pods()]


def pod_spec(name, **resource):
    return PodSpec(name, "app", {"vcore": 1, **resource})


@pytest.mark.parametrize(
    ("devices", "is_bound"), [(((0, 400),), True), (((0, 700),), False), (((2, 100),), False)]
)
def test_a_bind_is_refused_that_the_devices_do_not_hold(devices, is_bound):
    amount = devices[0][1]
    cluster, (first, second) = simulated(
        pod_spec("a", **{GPU_SHARE: 500}), pod_spec("b", **{GPU_SHARE: amount})
    )
    assert [type(news) for news in cluster.carry_out(BindPod(first, "n1", ((0, 500),)), 2)] == [
        PodBound
    ]
    (news,) = cluster.carry_out(BindPod(second, "n1", devices), 2)
    assert isinstance(news, PodBound if is_bound else BindRefused)
    assert cluster.world.on_nodes.devices_used("n1") == ({0: 900} if is_bound else {0: 500})
