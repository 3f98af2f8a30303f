"""What the admission webhook says: docs/rules/configuration.md#admission, as a table."""

import json

import pytest

from services.shim_adapter.admission.configmaps import judge
from services.shim_adapter.admission.decision import CHANGED, Context, decide
from services.shim_adapter.admission.filters import KEYS, Filters, filters_of, wrong_in
from services.shim_adapter.translation.pods import PriorityClass
from shared.queueconfig.validator import MAX_PARTITIONS
from tests.kubernetes.patches import by_steps
from tests.table import each_row

USER_INFO = "yunikorn.apache.org/user.info"
PREEMPTION = "yunikorn.apache.org/allow-preemption"
APP_ID, QUEUE = "yunikorn.apache.org/app-id", "yunikorn.apache.org/queue"
PLACEHOLDER = "internal.yunikorn.apache.org/placeholder"
ENABLE = "yunikorn.apache.org/namespace.enableYuniKorn"
GENERATE = "yunikorn.apache.org/namespace.generateAppId"
SHIM = "system:serviceaccount:muster:shim-adapter"
CONTROLLER = "system:serviceaccount:kube-system:job-controller"
ADA = {"username": "ada", "groups": ["dev", "system:authenticated"]}
ADAS = '{"user":"ada","groups":["dev","system:authenticated"]}'
BOBS = '{"user":"bob"}'


def given(**keys):
    """Return a context; a key is the last part of `admissionController.…`."""
    whole = {key.rpartition(".")[2]: key for key in KEYS.values()}
    data = {whole[name]: value for name, value in keys.items()}
    assert wrong_in(data) == []
    return Context(filters_of([data]), own_namespace="muster", shim_adapter=SHIM)


def pod(labels=None, annotations=None, **spec):
    metadata = {"name": "p"}
    if labels is not None:
        metadata["labels"] = labels
    if annotations is not None:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": {"schedulerName": "default-scheduler", **spec}}


def asked(body, kind="Pod", *, user=ADA, namespace="team", operation="CREATE", old=None):
    return {
        "uid": "1", "kind": {"kind": kind}, "operation": operation, "namespace": namespace,
        "userInfo": user, "object": body, "oldObject": old,
    }  # fmt: skip


def decided(body, context=None, **request):
    """Return the object as it is then, which would be patched no further."""
    context = context or given()
    verdict = decide(asked(body, **request), context)
    assert verdict.is_allowed, verdict.message
    after = by_steps(body, verdict.patch)
    assert decide(asked(after, **request), context).patch == ()
    return after


def refused(body, context=None, **request):
    verdict = decide(asked(body, **request), context or given())
    assert not verdict.is_allowed
    assert verdict.patch == ()
    return verdict.message


# --- pods -------------------------------------------------------------------------------------------


def test_a_pod_becomes_musters():
    after = decided(pod())
    assert after["spec"]["schedulerName"] == "yunikorn"
    named = "yunikorn-team-autogen"
    assert after["metadata"]["labels"] == {APP_ID: named, "applicationId": named}
    assert after["metadata"]["annotations"] == {USER_INFO: ADAS, PREEMPTION: "true"}


@each_row(
    "body",
    [
        pod(schedulerName="volcano"),
        pod(nodeName="n1"),
        pod(schedulerName="yunikorn", nodeName="n1"),
        pod({"app": "yunikorn"}),
        pod(annotations={USER_INFO: BOBS}, schedulerName="volcano"),
    ],
)
def test_a_pod_that_is_another_schedulers_or_has_a_node_is_not_touched(body):
    assert decided(body) == body


@pytest.mark.parametrize("namespace", ["kube-system", "muster"])
def test_namespaces_of_the_system_and_of_muster_itself_are_left_alone(namespace):
    assert decided(pod(), namespace=namespace) == pod()


def test_a_placeholder_of_musters_own_is_not_touched_and_somebody_elses_is_a_pod_like_any():
    body = pod(annotations={PLACEHOLDER: "true"}, schedulerName="yunikorn")
    assert decided(body, user={"username": SHIM}) == body
    assert USER_INFO in decided(body)["metadata"]["annotations"]


def test_a_pod_that_names_muster_keeps_the_name_it_has():
    assert decided(pod(schedulerName="muster"))["spec"]["schedulerName"] == "muster"
    assert decided(pod(schedulerName=""))["spec"]["schedulerName"] == "yunikorn"


@each_row(
    ("keys", "annotations", "namespace", "wanted"),
    [
        ({}, {}, "team", True),
        ({"processNamespaces": "^team$,^ml-"}, {}, "team", True),
        ({"processNamespaces": "^team$, ^ml-"}, {}, "ml-1", True),
        ({"processNamespaces": "^team$,^ml-"}, {}, "teams", False),
        ({"processNamespaces": "eam"}, {}, "teams", True),
        ({"bypassNamespaces": "^team$"}, {}, "team", False),
        ({"bypassNamespaces": "^team$"}, {}, "kube-system", True),
        ({"processNamespaces": "team", "bypassNamespaces": "team"}, {}, "team", False),
        ({"processNamespaces": "^other$"}, {ENABLE: "true"}, "team", True),
        ({"bypassNamespaces": "team"}, {ENABLE: "true"}, "team", True),
        ({}, {ENABLE: "false"}, "team", False),
        ({}, {ENABLE: "no"}, "team", True),
        ({"processNamespaces": " , "}, {}, "team", True),
    ],
)
def test_which_namespaces_are_musters(keys, annotations, namespace, wanted):
    context = given(**keys)
    context = Context(context.filters, annotations, own_namespace="muster")
    after = decided(pod(), context, namespace=namespace)
    assert (after["spec"]["schedulerName"] == "yunikorn") is wanted
    if not wanted:
        assert after == pod()


@each_row(
    ("keys", "annotations", "wanted"),
    [
        ({}, {}, True),
        ({"labelNamespaces": "^ml$"}, {}, False),
        ({"labelNamespaces": "^team$"}, {}, True),
        ({"noLabelNamespaces": "^team$"}, {}, False),
        ({"noLabelNamespaces": "^team$"}, {GENERATE: "true"}, True),
        ({}, {GENERATE: "false"}, False),
    ],
)
def test_which_namespaces_pods_are_given_an_application(keys, annotations, wanted):
    context = Context(given(**keys).filters, annotations)
    after = decided(pod(), context)
    assert ("labels" in after["metadata"]) is wanted
    assert after["spec"]["schedulerName"] == "yunikorn"
    mirrored = decided(pod({APP_ID: "a"}), context)["metadata"]["labels"]
    assert mirrored == ({APP_ID: "a", "applicationId": "a"} if wanted else {APP_ID: "a"})


@each_row(
    ("labels", "annotations", "after"),
    [
        ({"applicationId": "a"}, None, {"applicationId": "a"}),
        ({APP_ID: "a"}, None, {APP_ID: "a", "applicationId": "a"}),
        ({APP_ID: "a", "applicationId": "b"}, None, {APP_ID: "a", "applicationId": "a"}),
        ({"spark-app-selector": "s"}, None, {"spark-app-selector": "s"}),
        (None, {APP_ID: "a"}, None),
        (
            {"applicationId": "a", QUEUE: "root.x"},
            None,
            {"applicationId": "a", QUEUE: "root.x", "queue": "root.x"},
        ),
        (
            {"applicationId": "a", "queue": "root.x"},
            None,
            {"applicationId": "a", "queue": "root.x"},
        ),
    ],
)
def test_an_application_that_is_named_stays_and_the_old_labels_say_the_same(
    labels, annotations, after
):
    assert decided(pod(labels, annotations))["metadata"].get("labels") == after


@pytest.mark.parametrize(
    ("labels", "annotations", "spec"),
    [
        ({"scheduling.x-k8s.io/pod-group": "g"}, None, {}),
        ({}, {"pod-group-name": "g"}, {}),
        ({}, None, {"schedulingGroup": {"podGroupName": "g"}}),
    ],
)
def test_a_pod_of_a_pod_group_is_given_no_application_its_gang_is_one(labels, annotations, spec):
    after = decided(pod(labels, annotations, **spec))
    assert after["spec"]["schedulerName"] == "yunikorn"
    assert after["metadata"]["labels"] == labels


def test_what_is_no_pod_group_is_no_error():
    after = decided(pod(schedulingGroup="x", workloadRef=7))
    assert APP_ID in after["metadata"]["labels"]


@pytest.mark.parametrize(
    ("namespace", "unique", "named"),
    [
        ("team", "true", "team-uniqueautogen"),
        ("n" * 63, "true", "n" * 26 + "-uniqueautogen"),
        ("n" * 63, "false", ("yunikorn-" + "n" * 63)[:63]),
        ("n" * 53 + "-n", "false", None),  # cut behind its dash: no label has that
    ],
)
def test_the_names_that_are_made(namespace, unique, named):
    after = decided(pod(), given(generateUniqueAppId=unique), namespace=namespace)
    labels = {} if named is None else {APP_ID: named, "applicationId": named}
    assert after["metadata"].get("labels", {}) == labels


@each_row(
    ("name", "own", "wanted"),
    [
        ("", None, "true"),
        ("unknown", None, "true"),
        ("plain", None, "true"),
        ("kept", None, "false"),
        ("kept", "true", "true"),
        ("plain", "false", "false"),
        ("kept", "perhaps", "false"),
    ],
)
def test_what_a_priority_class_says_of_preemption_is_said_at_the_pod(name, own, wanted):
    classes = {"plain": PriorityClass(1), "kept": PriorityClass(1, "false")}
    annotations = None if own is None else {PREEMPTION: own}
    after = decided(pod(annotations=annotations, priorityClassName=name), Context(classes=classes))
    assert after["metadata"]["annotations"][PREEMPTION] == wanted


# --- who a pod is of --------------------------------------------------------------------------------


def test_nobody_says_who_they_are_but_those_who_may():
    body = pod(annotations={USER_INFO: BOBS})
    message = (
        "user ada with groups [dev,system:authenticated] is not allowed to set user annotation"
    )
    assert refused(body) == message
    assert refused(pod(annotations={USER_INFO: BOBS}, schedulerName="muster")) == message
    assert (
        decided(body, user={"username": CONTROLLER})["metadata"]["annotations"][USER_INFO] == BOBS
    )
    assert "not allowed" in refused(
        body, given(trustControllers="false"), user={"username": CONTROLLER}
    )
    assert "not allowed" in refused(
        body, given(systemUsers="^nobody$"), user={"username": CONTROLLER}
    )
    for keys in (
        {"externalUsers": "^a.a$"},
        {"externalGroups": "^ops$,^dev$"},
        {"bypassAuth": "true"},
    ):
        assert decided(body, given(**keys))["metadata"]["annotations"][USER_INFO] == BOBS


def test_who_says_the_truth_may():
    spaced = json.dumps({"Groups": ["dev", "system:authenticated"], "USER": "ada"})
    for text in (ADAS, spaced):
        assert (
            decided(pod(annotations={USER_INFO: text}))["metadata"]["annotations"][USER_INFO]
            == text
        )
    assert "not allowed" in refused(pod(annotations={USER_INFO: '{"user":"ada","groups":["ops"]}'}))


@each_row(
    "text",
    ["", "x", "{}", "[]", '{"user":""}', '{"user":1}', '{"user":"b","groups":"g"}', "[" * 5000],
)
def test_an_annotation_that_says_nothing_is_refused_even_from_who_may(text):
    body = pod(annotations={USER_INFO: text})
    assert "invalid user info annotation" in refused(body, user={"username": CONTROLLER})
    assert "not allowed" in refused(body)


@pytest.mark.parametrize("keys", [{"bypassNamespaces": "team"}, {}])
def test_a_pod_that_is_musters_is_protected_where_it_is_not_touched_otherwise(keys):
    labels = None if keys else {"app": "yunikorn"}
    body = pod(labels, {USER_INFO: BOBS}, schedulerName="yunikorn")
    assert "not allowed" in refused(body, given(**keys))
    body = pod(labels, schedulerName="yunikorn")
    assert decided(body, given(**keys)) == body
    body = pod(labels, {USER_INFO: BOBS})
    assert decided(body, given(**keys)) == body  # the default scheduler's: it means nothing


def test_without_bypass_the_requester_is_noted_and_with_it_nobody():
    assert decided(pod(), user={"username": "eve"})["metadata"]["annotations"][USER_INFO] == (
        '{"user":"eve"}'
    )
    assert USER_INFO not in decided(pod(), given(bypassAuth="true"))["metadata"]["annotations"]


@each_row(
    ("was", "now", "holds"),
    [(ADAS, ADAS, True), (None, None, True), (ADAS, BOBS, False), (ADAS, None, False),
     (None, ADAS, False)],
)  # fmt: skip
def test_the_annotation_of_a_pod_never_changes(was, now, holds):
    def body(text):
        return pod(
            annotations=None if text is None else {USER_INFO: text}, schedulerName="yunikorn"
        )

    request = asked(body(now), operation="UPDATE", old=body(was), user={"username": CONTROLLER})
    verdict = decide(request, given())
    assert (verdict.is_allowed, verdict.patch) == (holds, ())
    assert verdict.message == ("" if holds else CHANGED)
    assert decide(request, given(bypassAuth="true")).is_allowed
    for side in ("object", "oldObject"):
        request[side]["spec"]["schedulerName"] = "volcano"
    assert decide(request, given()).is_allowed


# --- workloads --------------------------------------------------------------------------------------

PATHS = {
    **dict.fromkeys(
        ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Job"), ("spec", "template")
    ),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}


def workload(kind, template):
    body = template
    for name in reversed(PATHS[kind]):
        body = {name: body}
    return {"metadata": {"name": "w"}, **body}


@each_row("kind", PATHS)
@each_row("metadata", [None, {}, {"annotations": {}}, {"annotations": {"a": "b"}}])
def test_a_workload_says_who_asked_for_it(kind, metadata):
    template = {"spec": {"schedulerName": "default-scheduler"}}
    if metadata is not None:
        template["metadata"] = metadata
    after = decided(workload(kind, template), kind=kind)
    inner = after
    for name in PATHS[kind]:
        inner = inner[name]
    own = (metadata or {}).get("annotations", {})
    assert inner["metadata"]["annotations"] == {**own, USER_INFO: ADAS}
    assert inner["spec"] == template["spec"]  # its pods are decided about one by one


@each_row("kind", PATHS)
def test_a_workload_is_protected_as_a_pod_is(kind):
    body = workload(kind, pod(annotations={USER_INFO: BOBS}))
    assert "not allowed" in refused(body, kind=kind)
    assert decided(body, kind=kind, user={"username": CONTROLLER}) == body
    assert decided(body, given(bypassAuth="true"), kind=kind) == body
    assert decided(body, given(bypassNamespaces="team"), kind=kind) == body
    foreign = workload(kind, pod(annotations={USER_INFO: BOBS}, schedulerName="volcano"))
    assert decided(foreign, kind=kind) == foreign


@each_row(
    ("was", "now", "after"),
    [
        (ADAS, ADAS, ADAS),
        (None, None, None),  # no new template, and no restart of its pods, because of us
        (BOBS, None, BOBS),
        (BOBS, ADAS, ADAS),
        (ADAS, BOBS, "not allowed"),
    ],
)
def test_a_workload_that_is_changed_stays_whose_it_was(was, now, after):
    def body(text):
        return workload("Deployment", pod(annotations={} if text is None else {USER_INFO: text}))

    request = {"kind": "Deployment", "operation": "UPDATE", "old": body(was)}
    if after == "not allowed":
        assert after in refused(body(now), **request)
    else:
        assert decided(body(now), **request) == body(after)


OWNER = {"kind": "Rollout", "name": "r", "uid": "u", "controller": True}
DEPLOYMENT_CONTROLLER = {"username": "system:serviceaccount:kube-system:deployment-controller"}


@each_row("kind", PATHS)
@each_row("operation", ["CREATE", "UPDATE"])
def test_what_a_controller_owns_or_a_system_account_writes_is_left_as_it_is(kind, operation):
    body = workload(kind, pod())
    owned = {**body, "metadata": {"name": "w", "ownerReferences": [OWNER]}}
    for was in (pod(), pod(annotations={USER_INFO: ADAS})):
        request = {"kind": kind, "operation": operation, "old": workload(kind, was)}
        assert decided(owned, **request) == owned
        assert decided(body, user=DEPLOYMENT_CONTROLLER, **request) == body
        untrusted = given(trustControllers="false")
        assert decided(body, untrusted, user=DEPLOYMENT_CONTROLLER, **request) == body
    others = given(systemUsers="^robot$")
    assert decided(body, others, kind=kind, user={"username": "robot"}) == body
    assert decided(body, others, kind=kind, user=DEPLOYMENT_CONTROLLER) != body


@each_row(
    "owners",
    [None, [], [{**OWNER, "controller": False}], [{"kind": "Node", "name": "n", "uid": "u"}],
     "x", ["x"], [{**OWNER, "controller": "true"}]],
)  # fmt: skip
def test_an_owner_that_is_no_controller_changes_nothing(owners):
    body = workload("Job", pod())
    body["metadata"]["ownerReferences"] = owners
    after = decided(body, kind="Job")
    assert after["spec"]["template"]["metadata"]["annotations"][USER_INFO] == ADAS


def test_an_owner_lets_nobody_say_that_they_are_somebody_else():
    body = workload("ReplicaSet", pod(annotations={USER_INFO: BOBS}))
    body["metadata"]["ownerReferences"] = [OWNER]
    assert "not allowed" in refused(body, kind="ReplicaSet")


def test_a_pod_that_a_controller_makes_becomes_musters():
    body = pod(annotations={USER_INFO: ADAS})
    body["metadata"]["ownerReferences"] = [OWNER]
    after = decided(body, user=DEPLOYMENT_CONTROLLER)
    assert after["spec"]["schedulerName"] == "yunikorn"
    assert after["metadata"]["annotations"][USER_INFO] == ADAS


@pytest.mark.parametrize("kind", ["ConfigMap", "SparkApplication", "PodTemplate"])
def test_other_kinds_and_operations_are_none_of_its_business(kind):
    assert decided({"spec": {}}, kind=kind) == {"spec": {}}
    assert decided(pod(), operation="DELETE") == pod()
    assert decided(pod(), operation="CONNECT") == pod()


@each_row(
    ("place", "value"),
    [
        ("object", None), ("object", []), ("userInfo", None), ("kind", "Pod"),
        ("userInfo", {"username": 7}), ("userInfo", {"username": "a", "groups": [1]}),
        ("object", {"metadata": [], "spec": {}}), ("object", {"metadata": {"labels": {"a": 1}}}),
        ("object", {"metadata": {"annotations": ["a"]}}), ("object", {"spec": "x"}),
    ],
)  # fmt: skip
def test_what_is_no_request_is_an_error_and_no_verdict(place, value):
    with pytest.raises(ValueError, match=r"expected|must be"):
        decide({**asked(pod()), place: value}, given())


# --- the keys ---------------------------------------------------------------------------------------


def test_the_keys_are_yunikorns_and_so_are_the_defaults():
    prefix = "admissionController."
    names = {key.removeprefix(prefix) for key in KEYS.values()}
    assert names == {
        "filtering.processNamespaces", "filtering.bypassNamespaces", "filtering.labelNamespaces",
        "filtering.noLabelNamespaces", "filtering.generateUniqueAppId", "accessControl.bypassAuth",
        "accessControl.trustControllers", "accessControl.systemUsers",
        "accessControl.externalUsers", "accessControl.externalGroups",
    }  # fmt: skip
    assert filters_of([{}, {}]) == Filters()


def test_a_key_that_cannot_be_read_is_told_and_is_as_if_it_were_not_there():
    trust, users = KEYS["trust_controllers"], KEYS["external_users"]
    wrong = {trust: "yes", users: "("}
    said = wrong_in(wrong)
    assert [line.partition(":")[0] for line in said] == [trust, users]
    assert "true or false" in said[0]
    assert "no regular expression" in said[1]
    assert filters_of([wrong]) == Filters()
    assert filters_of([{trust: "false"}, {trust: "T"}]).trust_controllers
    assert not filters_of([{trust: "T"}, {trust: "0"}]).trust_controllers
    assert "at most" in wrong_in({users: "a" * 70_000})[0]


def test_a_name_that_is_too_long_is_nobodys():
    assert not filters_of([{KEYS["external_users"]: "a"}]).may_name_others("a" * 2_000, [])


# --- the ConfigMaps ---------------------------------------------------------------------------------

GOOD = "partitions:\n  - name: default\n    queues:\n      - name: root\n"
BAD = GOOD + "        maxapplications: -1\n"
MANY = "partitions:\n- {name: default, queues: [{name: a}]}\n" + "".join(
    f"- {{name: p{at}, queues: [{{name: a}}]}}\n" for at in range(MAX_PARTITIONS)
)
RULE = GOOD + "    placementrules:\n      - name: nonsense\n"


def config(data, name="yunikorn-configs", namespace="muster", operation="UPDATE", **maps):
    request = {
        "name": name, "namespace": namespace, "operation": operation, "object": {"data": data},
    }  # fmt: skip
    return judge(request, "muster", {key.replace("_", "-"): value for key, value in maps.items()})


@each_row(
    ("data", "said"),
    [
        ({"queues.yaml": GOOD}, ""),
        ({}, ""),
        ({"queues.yaml": BAD}, "queues.yaml line"),
        ({"queues.yaml": RULE}, "unknown rule name"),
        ({"queues.yaml": GOOD.replace("default", "other")}, "a partition named default is needed"),
        (
            {"queues.yaml": MANY},
            "queues.yaml line 1002: 1001 partitions, at most 1000 are scheduled",
        ),
        ({"queues.yaml": "a: [" * 1000}, "queues.yaml line"),
        ({"q.yaml": BAD}, ""),
        ({"q.yaml": BAD, "service.policyGroup": "q"}, "queues.yaml line"),
        ({KEYS["process_namespaces"]: "*"}, "no regular expression"),
        ({KEYS["bypass_auth"]: "maybe"}, "true or false"),
        ({"service.dispatchTimeout": "soon"}, "service.dispatchTimeout: a duration such as 1s"),
        ({"service.dispatchTimeout": "5m", "kubernetes.qps": "1000", "log.level": "x"}, ""),
    ],
)
def test_a_configmap_is_judged_before_it_is_stored(data, said):
    for operation in ("CREATE", "UPDATE"):
        verdict = config(data, operation=operation)
        assert verdict.is_allowed is (not said), verdict.message
        assert said in verdict.message
    assert config(data, operation="DELETE").is_allowed
    assert config(data, namespace="team").is_allowed
    assert config(data, name="other").is_allowed


def test_both_configmaps_are_judged_together_and_only_what_changes():
    assert config(
        {"queues.yaml": BAD}, "yunikorn-defaults", yunikorn_configs={"queues.yaml": GOOD}
    ).is_allowed
    assert not config({"queues.yaml": BAD}, "yunikorn-defaults").is_allowed
    assert not config(
        {}, yunikorn_defaults={"queues.yaml": BAD}, yunikorn_configs={"queues.yaml": GOOD}
    ).is_allowed
    there = {"queues.yaml": BAD}
    assert config({**there, "log.level": "1"}, yunikorn_configs=there).is_allowed


@pytest.mark.parametrize("body", [None, [], {"data": []}, {"binaryData": "x"}])
def test_what_is_no_configmap_is_an_error(body):
    request = {"name": "yunikorn-configs", "namespace": "muster", "operation": "CREATE"}
    with pytest.raises(ValueError, match="a map is expected"):
        judge({**request, "object": body}, "muster", {})
