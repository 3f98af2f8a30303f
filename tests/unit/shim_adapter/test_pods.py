"""From manifests to pods."""

import json
import re

import pytest

from services.shim_adapter.mirror.gangs import missing_placeholders
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import ApplicationRecord, PodRecord
from services.shim_adapter.translation.manifests import translate
from services.shim_adapter.translation.placeholders import placeholder_name, placeholder_pod
from services.shim_adapter.translation.pods import (
    Reading,
    application_id_of,
    conflicting_names,
    pod_request,
    with_uid,
)
from shared.messages.commands import ManifestDocument, TaskGroupSpec
from tests.table import each_row


def submit(body):
    return translate([ManifestDocument("file.yaml", 1, json.dumps(body))], 7)


def pod(**spec):
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"schedulerName": "yunikorn", "containers": containers, **spec},
    }


def test_requests_add_up_with_sidecars_init_containers_overhead_and_one_pod():
    def c(cpu, **more):
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [c("1", restartPolicy="Always"), c("5")],
        "containers": [c("2"), {"resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}],
        "overhead": {"memory": "1Mi"},
    }
    assert pod_request(spec, "spec") == {"vcore": 6000, "memory": 2**30 + 2**20, "pods": 1}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"requests": {"cpu": "3"}}, {"vcore": 3000, "example.com/gpu": 1}),
        ({"limits": {"cpu": "3", "memory": "1k"}}, {"vcore": 1000, "memory": 1000, "example.com/gpu": 1}),
        ({"requests": {"memory": "1k"}, "limits": {"memory": "2k"}}, {"vcore": 1000, "memory": 1000, "example.com/gpu": 1}),
    ],
)  # fmt: skip
def test_what_the_pod_as_a_whole_asks_for_counts_before_its_containers(resources, expected):
    """docs/rules/pods.md#what-a-pod-asks-for; a limit stands in for a request that neither the pod nor a container has."""
    container = {"resources": {"requests": {"cpu": "1"}, "limits": {"example.com/gpu": 1}}}
    spec = {"containers": [container], "resources": resources, "overhead": {"cpu": "250m"}}
    expected = {**expected, "vcore": expected["vcore"] + 250, "pods": 1}
    assert pod_request(spec, "spec") == expected


@each_row(
    ("body", "field", "message"),
    [
        ({"kind": "Pod", "metadata": {"name": "p"}}, "spec", "a map was expected, found nothing"),
        (pod(schedulerName="default-scheduler"), "spec.schedulerName", "must be yunikorn"),
        (pod(containers=[{"resources": {"requests": {"cpu": "-1"}}}]), "spec.containers[0].resources.requests", "cannot be negative"),
        (pod(containers=[{"resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]), "spec.containers[0].resources.limits", "nvidia.com/gpu: a whole number was expected, found '0.5'"),
        (pod(containers=[{"resources": {"limits": {"nvidia.com/gpu": 0.5}}}]), "spec.containers[0].resources.limits", "a whole number"),
        (pod(containers=[{"resources": {"limits": {"nvidia.com/gpu": "1500m"}}}]), "spec.containers[0].resources.limits", "a whole number"),
        (pod(containers=[{"resources": {"requests": {"cpu": "abc"}}}]), "spec.containers[0].resources.requests", "is not a quantity"),
        (pod(containers=[{"resources": {"requests": {"cpu": True}}}]), "spec.containers[0].resources.requests", "is not a quantity"),
        (pod(containers=[{"resources": {"requests": {"memory": "9E"}}}, {"resources": {"requests": {"memory": "9E"}}}]), "spec", "does not fit 64 bits"),
        (pod(containers="x"), "spec.containers", "a list was expected"),
        (pod(priority=2**40), "spec.priority", "32-bit"),
        (pod(tolerations=[{"operator": "Sometimes"}]), "spec.tolerations[0]", "one of Equal, Exists, Gt, Lt"),
        (pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]), "spec.tolerations[0].value", "no value"),
        (pod(tolerations=[{"value": "b"}]), "spec.tolerations[0].operator", "must be Exists"),
        (pod(tolerations=[{"key": "a", "effect": "NoPlace"}]), "spec.tolerations[0].effect", "one of NoSchedule"),
        (pod(nodeName="n1"), "spec.nodeName", "is not scheduled"),
        (pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}, {"name": "g"}]), "spec.schedulingGates", "until its gates are removed"),
        (pod(nodeSelector={"a": 1}), "spec.nodeSelector", "a map of texts"),
        ({"kind": "Job", "metadata": {"name": "j"}, "spec": {"completions": -1}}, "spec.completions", "0 or more"),
        ({"kind": "Job", "metadata": {"name": "j"}, "spec": {"completions": 10**9}}, "spec.completions", "at most"),
        ({"kind": "Job", "metadata": {"name": "j"}, "spec": {}}, "spec.template", "a map was expected"),
        ({"kind": "Secret", "metadata": {"name": "s"}}, "kind", "not a workload"),
        ({"metadata": {"name": "s"}}, "kind", "needs a kind"),
        ({"kind": "Pod", "metadata": {"name": "x" * 300}, "spec": {}}, "metadata.name", "at most 253"),
        ({"kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b" * 99}}, "spec": {"schedulerName": "yunikorn"}}, "metadata.labels[a]", "at most 63"),
    ],
)  # fmt: skip
def test_a_bad_manifest_is_refused_at_its_field(body, field, message):
    ((_, error),) = submit(body).refused
    assert error.field_path == field
    assert message in error.message


def test_bad_task_groups_do_not_fail_the_pod():
    body = pod()
    body["metadata"]["annotations"] = {"yunikorn.apache.org/task-groups": "[{"}
    (taken,) = submit(body).taken
    assert taken.pods[0].task_groups == ()
    assert "not JSON" in taken.pods[0].task_groups_error


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({"yunikorn.apache.org/app-id": "a", "applicationId": "b"}, {}, "a"),
        ({"applicationId": "b"}, {"yunikorn.apache.org/app-id": "c"}, "c"),
        ({"spark-app-selector": "s"}, {}, "s"),
        ({}, {}, "yunikorn-default-autogen"),
    ],
)
def test_the_application_id_comes_from_the_first_source_that_has_one(labels, annotations, expected):
    body = pod()
    body["metadata"] |= {"labels": labels, "annotations": annotations}
    assert submit(body).taken[0].pods[0].application_id == expected


def test_a_priority_class_of_the_same_file_gives_its_pods_their_priority():
    documents = [
        ManifestDocument("f", 2, json.dumps(pod(priorityClassName="high"))),
        ManifestDocument(
            "f", 1, json.dumps({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9})
        ),
    ]
    assert translate(documents, 1).taken[0].pods[0].priority == 9


def priority_class(name, value, **more):
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **more}


@each_row(
    ("classes", "spec", "priority", "may_preempt"),
    [
        ([priority_class("a", 7, preemptionPolicy="Never")], {"priorityClassName": "a"}, 7, False),
        ([priority_class("a", 7, globalDefault=True)], {}, 7, True),
        ([priority_class("a", 7, globalDefault=True), priority_class("b", 5, globalDefault=True)], {}, 5, True),
        ([priority_class("a", 7, globalDefault=True), priority_class("b", 5)], {"priorityClassName": "b"}, 5, True),
        ([priority_class("a", 7, preemptionPolicy="Never")], {"priorityClassName": "a", "preemptionPolicy": "PreemptLowerPriority"}, 7, True),
        ([], {"priorityClassName": "of-nobody"}, 0, True),
        ([], {"priorityClassName": "system-node-critical"}, 2_000_001_000, True),
        ([], {"priorityClassName": "system-cluster-critical"}, 2_000_000_000, True),
    ],
)  # fmt: skip
def test_priority_classes_do_what_admission_does_with_them(classes, spec, priority, may_preempt):
    """docs/rules/kubernetes.md#priority-and-preemption: they are resolved to a priority and a preemptionPolicy."""
    bodies = [pod(**spec), *classes]
    documents = [ManifestDocument("f", at, json.dumps(body)) for at, body in enumerate(bodies)]
    (made,) = translate(documents, 1).taken[0].pods
    assert (made.priority, made.allow_preempt_other) == (priority, may_preempt)


def test_kueues_gate_is_lifted_here():
    gated = pod(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    (taken,) = translate([ManifestDocument("f", 1, json.dumps(gated))], 1).taken
    assert len(taken.pods) == 1


def test_k02_k05_a_placeholder_is_named_and_labelled_as_yunikorn_does():
    application = ApplicationRecord("app01", 1, queue_name="root.a", priority=3)
    group = TaskGroupSpec(
        "test-group-1", 10, {"vcore": 500, "memory": 1_024_000_000}, labels={"l": "1"}
    )
    made = placeholder_pod(application, group, "cause")
    assert made.name.startswith("tg-app01-test-group-1-")
    assert len(made.name.rsplit("-", 1)[1]) == 10
    assert made.resource == {"vcore": 500, "memory": 1_024_000_000, "pods": 1}
    assert made.labels == {
        "l": "1",
        "yunikorn.apache.org/app-id": "app01",
        "yunikorn.apache.org/queue": "root.a",
    }
    assert made.annotations["internal.yunikorn.apache.org/placeholder"] == "true"
    assert made.priority == 3
    assert placeholder_pod(application, group, "cause") == made
    long = placeholder_pod(ApplicationRecord("a" * 63, 1), TaskGroupSpec("g" * 63, 1, {}), "c")
    assert len(long.name) <= 63


def test_k_05_every_placeholder_that_is_missing_is_made_and_none_that_is_there():
    groups = tuple(TaskGroupSpec(f"test-group-{n}", n * 10, {"vcore": 500}) for n in (1, 2))
    application = ApplicationRecord("app01", 1, task_groups=groups)
    world = World()
    made = list(missing_placeholders(world, application))
    names = [call.spec.name for call in made]
    assert len(set(names)) == 30
    assert sum(name.startswith("tg-app01-test-group-1-") for name in names) == 10
    for call in made[:3]:
        world.add_pod(PodRecord(call.uid, call.spec, 1, 1))
    again = list(missing_placeholders(world, application))
    assert len(again) == 27
    assert [call.spec.task_group_name for call in again].count("test-group-1") == 7
    assert not set(names) & {call.spec.name for call in again}


ALLOW = "yunikorn.apache.org/allow-preemption"


@each_row(
    ("of_pod", "of_class", "may_go"),
    [
        (None, None, True), (None, "false", False), (None, "true", True), (None, "no", True),
        ("false", "true", False), ("true", "false", True), ("False", "true", True),
        ("maybe", "false", False), ("", "false", False), ("", None, True),
    ],
)  # fmt: skip
def test_a_pod_wins_over_its_class_where_it_says_true_or_false(of_pod, of_class, may_go):
    """docs/rules/pods.md#labels-and-annotations: "true"/"false", else the PriorityClass's annotation; the default is true."""
    body = pod(priorityClassName="c")
    body["metadata"]["annotations"] = {} if of_pod is None else {ALLOW: of_pod}
    known = priority_class("c", 7)
    known["metadata"]["annotations"] = {} if of_class is None else {ALLOW: of_class}
    documents = [
        ManifestDocument("f", at, json.dumps(item)) for at, item in enumerate((body, known))
    ]
    (made,) = translate(documents, 1).taken[0].pods
    assert made.allow_preempt_self is may_go


@pytest.mark.parametrize(
    ("labels", "annotations", "said"),
    [
        ({}, {}, ()),
        ({"applicationId": "a", "spark-app-selector": "a"}, {"yunikorn.apache.org/app-id": "a"}, ()),
        (
            {"applicationId": "b", "queue": "root.x"},
            {"yunikorn.apache.org/app-id": "a", "yunikorn.apache.org/queue": "root.y"},
            (
                ("app-id", '{"annotations[yunikorn.apache.org/app-id]": "a", "labels[applicationId]": "b"}'),
                ("queue", '{"annotations[yunikorn.apache.org/queue]": "root.y", "labels[queue]": "root.x"}'),
            ),
        ),
        ({"queue": "root.x"}, {"queue": "root.y"}, ()),
    ],
)  # fmt: skip
def test_who_names_several_applications_or_queues_is_told_so(labels, annotations, said):
    """docs/rules/pods.md#its-queue: conflicting values are only a warning; an annotation ``queue`` is none."""
    assert conflicting_names(labels, annotations) == tuple(
        f"Found multiple '{name}' value in pod. {values}" for name, values in said
    )


@each_row(
    ("application", "named"),
    [
        ("a", "a"),
        ("team-uniqueautogen", "team-0123456789abcdef"),
        ("t" * 49 + "-uniqueautogen", "t" * 49 + "-0123456789abc"),
        ("t" * 60 + "-uniqueautogen", "t" * 60 + "-01"),
        ("-uniqueautogen-", "-uniqueautogen-"),
    ],
)
def test_the_suffix_gives_way_to_the_uid_before_anything_is_cut(application, named):
    """docs/rules/pods.md#its-application: replaced by ``-<podUID>``, all truncated to 63 characters."""
    annotations = {"yunikorn.apache.org/app-id": application}
    found = application_id_of({}, annotations, "ns", Reading())
    assert with_uid(found, "0123456789abcdef") == named


@pytest.mark.parametrize(
    ("application", "group", "start"),
    [
        ("a" * 28, "g" * 20, f"tg-{'a' * 28}-{'g' * 20}-"),
        ("a" * 29, "g" * 21, f"tg-{'a' * 28}-{'g' * 20}-"),
        ("a" * 27 + ".b", "g" * 19 + ".h", f"tg-{'a' * 27}-{'g' * 19}-"),
        ("a.b", "c", "tg-a.b-c-"),
    ],
)
def test_a_placeholders_name_is_cut_where_no_dot_stands_before_a_dash(application, group, start):
    """docs/rules/gangs.md#placeholder-pods, docs/rules/kubernetes.md#events-and-names: a cut that leaves a dot before the dash is 422."""
    name = placeholder_name(application, group, "cause")
    assert (name[:-10], len(name) <= 63) == (start, True)
    assert re.fullmatch("[a-z0-9]{10}", name[-10:])
