"""Workloads: what each kind expands to, and what is refused of it, by field."""

import json
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.shim_adapter.records import NodeRecord
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.manifests import translate
from services.shim_adapter.translation.namespaces import namespace_quota, namespace_tags
from services.shim_adapter.translation.workloads.pod_groups import kai_pod_group
from shared.messages.commands import ManifestDocument
from shared.messages.constraints import Taint
from shared.messages.interface import GangSettings, SubGroup
from tests.table import each_row


def submit(*bodies, nodes=()):
    documents = [ManifestDocument("f", at, json.dumps(body)) for at, body in enumerate(bodies)]
    return translate(documents, 7, nodes)


def template(**more):
    resources = {"requests": {"cpu": "1"}}
    spec = {"containers": [{"name": "c", "resources": resources}], **more}
    return {"metadata": {"labels": {"app": "x"}}, "spec": spec}


def doc(version, kind, **spec):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": spec}


def pods(*bodies, nodes=()):
    result = submit(*bodies, nodes=nodes)
    assert result.refused == [], [str(error) for _, error in result.refused]
    return [pod for document in result.taken for pod in document.pods]


def minimum(pod):
    return {group.name: group.min_member for group in pod.task_groups}


def roles(**counts):
    return {role: {"replicas": n, "template": template()} for role, n in counts.items()}


def test_kubernetes_own_kinds():
    assert [
        p.name for p in pods(doc("apps/v1", "Deployment", replicas=2, template=template()))
    ] == ["w-0", "w-1"]
    assert len(pods(doc("apps/v1", "ReplicaSet", template=template()))) == 1
    stateful = doc("apps/v1", "StatefulSet", replicas=2, ordinals={"start": 3}, template=template())
    assert [p.name for p in pods(stateful)] == ["w-3", "w-4"]
    job = {"completions": 3, "parallelism": 1, "template": template()}
    cron = doc("batch/v1", "CronJob", schedule="* * * * *", jobTemplate={"spec": job})
    assert [p.name for p in pods(cron)] == ["w-0", "w-1", "w-2"]
    assert {p.application_id for p in pods(cron)} == {"yunikorn-default-autogen"}


def test_what_pods_claim_of_volumes_and_devices_and_nobody_gives_is_said_with_its_field():
    volumes = [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "c"}},
    ]
    claiming = template(volumes=volumes, resourceClaims=[{"name": "gpu"}])
    stateful = {"volumeClaimTemplates": [{"metadata": {"name": "d"}}], "template": template()}
    scratch = template(volumes=[{"name": "s", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}])
    result = submit(
        doc("batch/v1", "Job", template=claiming),
        doc("apps/v1", "StatefulSet", **stateful),
        doc("apps/v1", "ReplicaSet", template=scratch),
        doc("apps/v1", "Deployment", template=template(volumes=volumes[:1])),
    )
    none = "pods are placed as if they claimed none"
    assert [taken.warnings for taken in result.taken] == [
        (
            "spec.template.spec.resourceClaims: dynamic resource allocation is not supported: "
            + none,
            "spec.template.spec.volumes[1].persistentVolumeClaim: the simulated cluster has no volumes: "
            + none,
        ),
        ("spec.volumeClaimTemplates: the simulated cluster has no volumes: " + none,),
        (
            "spec.template.spec.volumes[0].ephemeral.volumeClaimTemplate: the simulated cluster has no "
            "volumes: " + none,
        ),
        (),
    ]


def test_a_job_that_is_paused_has_no_pods_and_an_indexed_one_says_how_many():
    def job(**spec):
        return doc("batch/v1", "Job", template=template(), **spec)

    assert pods(job(parallelism=0, completions=5)) == []
    assert len(pods(job(parallelism=4, completions=None))) == 4
    assert len(pods(job(parallelism=5, completions=2))) == 2
    for body, field in (
        (job(completionMode="Indexed", parallelism=3), "spec.completions"),
        (job(suspend="true"), "spec.suspend"),
    ):
        ((_, error),) = submit(body).refused
        assert error.field_path == field


def test_a_daemon_set_has_a_pod_on_every_node_that_it_matches():
    nodes = (
        NodeRecord("a", {}, {"disk": "ssd"}),
        NodeRecord("b", {}, {"disk": "hdd"}),
        NodeRecord("c", {}, {"disk": "ssd"}, (Taint("gpu"),)),
        NodeRecord("d", {}, {"disk": "ssd"}, (Taint("node.kubernetes.io/not-ready"),)),
    )
    body = doc("apps/v1", "DaemonSet", template=template(nodeSelector={"disk": "ssd"}))
    made = pods(body, nodes=nodes)
    assert [(p.name, p.constraints.required_node) for p in made] == [("w-a", "a"), ("w-d", "d")]
    ((_, error),) = submit(body).refused
    assert "no node of the cluster matches" in error.message


@each_row(
    ("kind", "key", "counts", "expected"),
    [
        (
            "PyTorchJob",
            "pytorchReplicaSpecs",
            {"Master": 1, "Worker": 3},
            {"master": 1, "worker": 3},
        ),
        ("TFJob", "tfReplicaSpecs", {"PS": 2, "Worker": 4}, {"ps": 2, "worker": 4}),
        ("MPIJob", "mpiReplicaSpecs", {"Launcher": 1, "Worker": 2}, {"launcher": 1, "worker": 2}),
        ("XGBoostJob", "xgbReplicaSpecs", {"Master": 1, "Worker": 2}, {"master": 1, "worker": 2}),
        ("PaddleJob", "paddleReplicaSpecs", {"Worker": 2}, {"worker": 2}),
        ("JAXJob", "jaxReplicaSpecs", {"Worker": 2}, {"worker": 2}),
    ],
)
def test_a_kubeflow_job_is_a_gang_of_all_its_roles(kind, key, counts, expected):
    made = pods(doc("kubeflow.org/v1", kind, **{key: roles(**counts)}))
    assert minimum(made[0]) == expected
    assert {p.application_id for p in made} == {f"{kind.lower()}-w"}
    assert next(p.name for p in made if p.task_group_name == "worker") == "w-worker-0"


def test_a_kubeflow_job_may_say_how_few_will_do_and_the_leader_counts_first():
    spec = roles(Worker=4, Master=1)
    policy = {"schedulingPolicy": {"minAvailable": 3, "queue": "root.q"}}
    made = pods(doc("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=spec, runPolicy=policy))
    assert minimum(made[0]) == {"master": 1, "worker": 2}
    assert {p.queue_name for p in made} == {"root.q"}
    assert len(made) == 5
    elastic = doc(
        "kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=spec, elasticPolicy={"minReplicas": 2}
    )
    assert minimum(pods(elastic)[0]) == {"worker": 2, "master": 1}


def test_pods_with_yunikorns_own_task_groups_keep_them():
    annotated = template()
    groups = [{"name": "own", "minMember": 2, "minResource": {"cpu": 1}}]
    annotated["metadata"]["annotations"] = {
        "yunikorn.apache.org/task-groups": json.dumps(groups),
        "yunikorn.apache.org/task-group-name": "own",
        "yunikorn.apache.org/app-id": "mine",
    }
    spec = {"Worker": {"replicas": 3, "template": annotated}}
    made = pods(doc("kubeflow.org/v1", "TFJob", tfReplicaSpecs=spec))
    assert minimum(made[0]) == {"own": 2}
    assert {(p.application_id, p.task_group_name) for p in made} == {("mine", "own")}


def test_a_job_set_is_a_gang_of_every_job_it_replicates():
    jobs = [
        {"name": "leader", "template": {"spec": {"template": template()}}},
        {
            "name": "workers",
            "replicas": 2,
            "template": {"spec": {"parallelism": 3, "completions": 3, "template": template()}},
        },
    ]
    made = pods(doc("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=jobs))
    assert minimum(made[0]) == {"leader": 1, "workers": 6}
    assert [p.name for p in made][:2] == ["w-leader-0-0", "w-workers-0-0"]


def test_a_spark_application_is_sized_as_spark_sizes_it():
    spec = {
        "type": "Python",
        "driver": {"cores": 2, "memory": "4g", "coreRequest": "500m"},
        "executor": {"instances": 3, "memory": "512m", "memoryOverhead": "1g", "cores": 4},
        "batchSchedulerOptions": {"queue": "root.spark"},
    }
    made = pods(doc("sparkoperator.k8s.io/v1beta2", "SparkApplication", **spec))
    gib = 2**30
    assert made[0].resource == {"vcore": 500, "memory": 4 * gib + 4 * gib * 4 // 10, "pods": 1}
    assert made[1].resource == {"vcore": 4000, "memory": gib // 2 + gib, "pods": 1}
    assert minimum(made[0]) == {"spark-driver": 1, "spark-executor": 3}
    assert {p.queue_name for p in made} == {"root.spark"}
    dynamic = {
        **spec,
        "dynamicAllocation": {"enabled": True, "minExecutors": 1, "initialExecutors": 2},
    }
    assert len(pods(doc("sparkoperator.k8s.io/v1beta2", "SparkApplication", **dynamic))) == 3


def test_a_ray_cluster_starts_with_the_fewest_workers_of_every_group():
    groups = [
        {
            "groupName": "gpu",
            "replicas": 3,
            "minReplicas": 1,
            "numOfHosts": 2,
            "template": template(),
        },
        {"groupName": "spare", "replicas": 1, "minReplicas": 0, "template": template()},
    ]
    spec = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": groups}
    made = pods(doc("ray.io/v1", "RayCluster", **spec))
    assert minimum(made[0]) == {"headgroup": 1, "gpu": 2}
    assert [p.task_group_name for p in made].count("gpu") == 6
    assert made[-1].task_group_name == ""
    job = pods(doc("ray.io/v1", "RayJob", rayClusterSpec=spec, entrypoint="x"))
    assert (job[-1].name, job[-1].task_group_name, job[-1].resource["vcore"]) == (
        "w-submitter",
        "",
        500,
    )
    http = doc("ray.io/v1", "RayJob", rayClusterSpec=spec, submissionMode="HTTPMode")
    assert len(pods(http)) == len(job) - 1


def test_a_volcano_job_counts_its_minimum_from_the_first_task_on():
    tasks = [
        {"name": "a", "replicas": 2, "template": template()},
        {"name": "b", "replicas": 4, "template": template()},
    ]
    made = pods(doc("batch.volcano.sh/v1alpha1", "Job", minAvailable=3, tasks=tasks, queue="q"))
    assert minimum(made[0]) == {"a": 2, "b": 1}
    own = [{**tasks[0], "minAvailable": 1}, {**tasks[1], "minAvailable": 2}]
    assert minimum(pods(doc("batch.volcano.sh/v1alpha1", "Job", minAvailable=3, tasks=own))[0]) == {
        "a": 1,
        "b": 2,
    }


def test_a_pod_group_is_the_gang_of_the_pods_that_name_it_and_of_no_others():
    group = doc("scheduling.run.ai/v2alpha2", "PodGroup", minMember=2, queue="root.k")
    named = template()
    named["metadata"]["annotations"] = {"pod-group-name": "w"}
    job = doc("batch/v1", "Job", completions=3, template=named)
    made = pods(group, job)
    assert minimum(made[0]) == {}  # a gang of KAI's has no placeholders
    assert made[0].gang.subgroups == (SubGroup("w", "", 2),)
    assert {(pod.task_group_name, pod.application_id) for pod in made} == {("w", "podgroup-w")}
    assert made[0].queue_name == "root.k"
    ((_, error),) = submit(group).refused
    assert "no pod that is taken names the PodGroup 'w'" in error.message


def test_two_pod_groups_of_one_name_are_both_refused_in_whichever_order():
    first = doc("scheduling.x-k8s.io/v1alpha1", "PodGroup", minMember=2)
    second = doc("scheduling.run.ai/v2alpha2", "PodGroup", minMember=1)
    named = template()
    named["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "w"}
    job = doc("batch/v1", "Job", completions=3, template=named)
    for groups in ((first, second), (second, first)):
        result = submit(*groups, job)
        assert result.taken == []
        assert all("there are two PodGroups 'w'" in str(error) for _, error in result.refused)


@each_row("least", [-1, 2**31, 10**9, "3", 2.5, True])
def test_the_pods_of_a_pod_group_that_is_refused_are_refused_with_it(least):
    group = doc("scheduling.x-k8s.io/v1alpha1", "PodGroup", minMember=least)
    named = template()
    named["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "w"}
    job = doc("batch/v1", "Job", completions=3, template=named)
    result = submit(group, job, doc("batch/v1", "Job", completions=1, template=template()))
    assert [taken.kind for taken in result.taken] == ["Job"]
    (_, own), (_, of_its_pods) = result.refused
    assert own.field_path == "spec.minMember"
    assert str(of_its_pods) == f"PodGroup w: it is refused: {own}"


def test_a_pod_group_of_scheduling_x_k8s_io_is_named_by_a_label():
    group = doc("scheduling.x-k8s.io/v1alpha1", "PodGroup", minMember=2)
    named = template()
    named["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "w"}
    made = pods(group, doc("batch/v1", "Job", completions=3, template=named))
    assert minimum(made[0]) == {"batch": 2}


def test_a_pod_group_says_of_priority_and_preemption_what_its_pods_do_not():
    """docs/rules/kai.md#pod-groups: priorityClassName and preemptibility are the group's."""
    classes = [
        {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("train", 50), ("build", 100))
    ]
    more = {"priorityClassName": "build", "preemptibility": "non-preemptible"}
    group = doc("scheduling.run.ai/v2alpha2", "PodGroup", minMember=2, **more)
    for own, annotations, expected in (
        ({}, {}, (100, False)),
        ({"priorityClassName": "train"}, {}, (50, False)),
        ({}, {"yunikorn.apache.org/allow-preemption": "true"}, (100, True)),
    ):
        named = template(**own)
        named["metadata"]["annotations"] = {"pod-group-name": "w", **annotations}
        job = doc("batch/v1", "Job", parallelism=2, template=named)
        made = pods(*classes, group, job)
        assert [(pod.priority, pod.allow_preempt_self) for pod in made] == [expected] * 2
        assert made[0].gang.subgroups == (SubGroup("w", "", 2),)


def kai(*subgroups, annotations=None, **spec):
    spec |= {"subGroups": list(subgroups)} if subgroups else {}
    metadata = {"name": "w", "annotations": annotations or {}}
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def job_of(subgroup, count, name="j"):
    named = template()
    named["metadata"]["annotations"] = {"pod-group-name": "w"}
    named["metadata"]["labels"] = {"kai.scheduler/subgroup-name": subgroup}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"completions": count, "template": named},
    }


@each_row(
    ("group", "wanted"),
    [
        (kai(), GangSettings((SubGroup("w"),))),
        (kai(minMember=0), GangSettings((SubGroup("w", "", 0),))),
        (kai({"name": "a"}, {"name": "b", "minMember": 2}, minSubGroup=1), GangSettings((SubGroup("a"), SubGroup("b", "", 2)), 1)),
        (
            kai({"name": "a", "parent": "g"}, {"name": "g", "minSubGroup": 1}, {"name": "b", "parent": "g", "minMember": 0}, minMember=9),
            GangSettings((SubGroup("g", "", 1, True), SubGroup("a", "g"), SubGroup("b", "g", 0))),
        ),
        (kai({"name": "g"}, {"name": "a", "parent": "g"}), GangSettings((SubGroup("g", "", -1, True), SubGroup("a", "g")))),
        (kai(preemptionDelay="5m", stalenessGracePeriod="-1s"), GangSettings((SubGroup("w"),), preemption_delay_ns=300 * 10**9, staleness_grace_ns=-1)),
        (kai(preemptionDelay="-5m", stalenessGracePeriod="0s"), GangSettings((SubGroup("w"),), staleness_grace_ns=0)),
        (
            kai(annotations={"kai.scheduler/preemption-delay": "1s", "kai.scheduler/staleness-grace-period": "2s"}, stalenessGracePeriod="3s"),
            GangSettings((SubGroup("w"),), preemption_delay_ns=10**9, staleness_grace_ns=3 * 10**9),
        ),
    ],
)  # fmt: skip
def test_a_group_of_kai_is_a_tree_of_minimums(group, wanted):
    assert kai_pod_group(group, "w").terms == wanted


@each_row(
    ("group", "field", "sentence"),
    [
        (kai({"name": "a", "parent": "b"}), "spec.subGroups[a].parent", "no subgroup 'b'"),
        (kai({"name": "a", "parent": "a"}), "spec.subGroups[a].parent", "in a circle"),
        (kai({"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}), "spec.subGroups[a].parent", "in a circle"),
        (kai({"name": "a"}, {"name": "a"}), "spec.subGroups[1].name", "a name of its own"),
        (kai({"minMember": 1}), "spec.subGroups[0].name", "a name of its own"),
        (kai({"name": "a", "minSubGroup": 1}), "spec.subGroups[a].minSubGroup", "minMember is its minimum"),
        (kai({"name": "g", "minMember": 1}, {"name": "a", "parent": "g"}), "spec.subGroups[g].minMember", "minSubGroup is its minimum"),
        (kai({"name": "a"}, minSubGroup="1"), "spec.minSubGroup", "whole number"),
        (kai(preemptionDelay="soon"), "spec.preemptionDelay", "a duration like 90s"),
        (kai(stalenessGracePeriod=60), "spec.stalenessGracePeriod", "a duration like 90s"),
        (kai(annotations={"kai.scheduler/preemption-delay": "soon"}), "metadata.annotations[kai.scheduler/preemption-delay]", "a duration"),
    ],
)  # fmt: skip
def test_a_group_of_kai_that_does_not_hold_says_which_field(group, field, sentence):
    with pytest.raises(ManifestError) as error:
        kai_pod_group(group, "w")
    assert (error.value.field_path, sentence in error.value.message) == (field, True), str(error)


def test_pods_of_several_documents_are_of_one_group_of_kai():
    group = kai({"name": "a"}, {"name": "b", "minMember": 2}, minSubGroup=1)
    made = pods(group, job_of("a", 1, "j1"), job_of("b", 2, "j2"))
    assert [pod.task_group_name for pod in made] == ["a", "b", "b"]
    assert {pod.application_id for pod in made} == {"podgroup-w"}


def test_an_application_s_first_pod_states_its_times():
    named = template()
    named["metadata"]["annotations"] = {
        "kai.scheduler/preemption-delay": "10m",
        "kai.scheduler/staleness-grace-period": "soon",
    }
    (pod,) = pods(doc("batch/v1", "Job", completions=1, template=named))
    assert pod.gang == GangSettings(preemption_delay_ns=600 * 10**9)
    assert (
        "kai.scheduler/staleness-grace-period: 'soon' is not a duration like 90s"
        in pod.annotations_ignored
    )


def test_a_priority_class_says_what_its_pods_do_not():
    classes = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "p", "annotations": {"yunikorn.apache.org/allow-preemption": "false"}},
        "value": 5,
    }
    (made,) = pods(classes, doc("apps/v1", "ReplicaSet", template=template(priorityClassName="p")))
    assert (made.priority, made.allow_preempt_self, made.priority_class) == (5, False, "p")


@each_row(
    ("body", "field", "sentence"),
    [
        (doc("apps/v1", "Deployment"), "spec.template", "a map was expected"),
        (doc("apps/v1", "Deployment", replicas=-1, template=template()), "spec.replicas", "0 or more"),
        (doc("apps/v1", "Deployment", replicas=10**6, template=template()), "spec.replicas", "at most"),
        (doc("apps/v2", "Job", template=template()), "apiVersion", "Job is known of batch, batch.volcano.sh"),
        (doc("batch/v1", "Job", suspend=True, template=template()), "spec.suspend", "suspended"),
        (doc("batch/v1", "Job", template=template(schedulerName="default-scheduler")), "spec.template.spec.schedulerName", "must be yunikorn"),
        (doc("kubeflow.org/v1", "TFJob"), "spec.tfReplicaSpecs", "a map was expected"),
        (doc("kubeflow.org/v1", "TFJob", tfReplicaSpecs=roles(Boss=1)), "spec.tfReplicaSpecs", "found Boss"),
        (doc("kubeflow.org/v1", "TFJob", tfReplicaSpecs=roles(Worker=1), runPolicy={"suspend": True}), "spec.runPolicy.suspend", "suspended"),
        (doc("kubeflow.org/v1", "TFJob", tfReplicaSpecs=roles(Worker=1), runPolicy={"schedulingPolicy": {"minAvailable": 2}}), "spec.runPolicy.schedulingPolicy.minAvailable", "2 at least"),
        (doc("trainer.kubeflow.org/v1alpha1", "TrainJob", runtimeRef={"name": "mine"}), "spec.runtimeRef.name", "not part of the submission"),
        (doc("jobset.x-k8s.io/v1alpha2", "JobSet"), "spec.replicatedJobs", "at least one"),
        (doc("ray.io/v1", "RayJob", clusterSelector={"a": "b"}), "spec.clusterSelector", "not supported"),
        (doc("ray.io/v1", "RayCluster", headGroupSpec={"template": template()}, workerGroupSpecs=[{}]), "spec.workerGroupSpecs[0].groupName", "a name is needed"),
        (doc("sparkoperator.k8s.io/v1beta2", "SparkApplication", driver={"memory": "lots"}), "spec.driver.memory", "a size such as"),
        (doc("batch.volcano.sh/v1alpha1", "Job"), "spec.tasks", "No task specified"),
        (doc("batch.volcano.sh/v1alpha1", "Job", tasks=[{"name": "a", "replicas": 1, "minAvailable": 2, "template": template()}]), "spec.tasks[0].minAvailable", "should not be greater"),
        (doc("scheduling.run.ai/v2alpha2", "PodGroup", subGroups=[{"name": "a", "parent": "b"}]), "spec.subGroups[a].parent", "no subgroup"),
        (doc("scheduling.k8s.io/v1alpha3", "PodGroup", schedulingPolicy={"basic": {}}, parentCompositePodGroupName="c"), "spec.parentCompositePodGroupName", "read on a cluster alone"),
        (doc("scheduling.x-k8s.io/v1alpha1", "PodGroup", scheduleTimeoutSeconds="1"), "spec.scheduleTimeoutSeconds", "whole number"),
        (doc("scheduling.run.ai/v2alpha2", "PodGroup", subGroups=[{"name": f"s{at}"} for at in range(101)]), "spec.subGroups", "101 of them, at most 100"),
        (doc("scheduling.run.ai/v2alpha2", "PodGroup", preemptibility="sometimes"), "spec.preemptibility", "one of preemptible"),
        (doc("serving.knative.dev/v1", "Service"), "kind", "not a workload"),
        ({"kind": "Job", "metadata": {"name": "w", "annotations": {"kai.scheduler/batch-min-member": "x"}}, "spec": {"template": template()}}, "metadata.annotations[kai.scheduler/batch-min-member]", "whole number"),
        ({"kind": "Job", "metadata": "w"}, "metadata", "a map was expected"),
        (doc("apps/v1", "Deployment", template={"metadata": {"annotations": [1]}, "spec": {}}), "spec.template.metadata.annotations", "a map was expected"),
        (doc("apps/v1", "Deployment", template={"metadata": {"labels": 3}, "spec": {}}), "spec.template.metadata.labels", "a map"),
    ],
)  # fmt: skip
def test_what_is_refused_names_its_field(body, field, sentence):
    ((_, error),) = submit(body).refused
    assert (error.field_path, sentence in error.message) == (field, True), str(error)


def test_k_10_a_namespaces_quota():
    def quota(**annotations):
        prefix = "yunikorn.apache.org/namespace."
        return namespace_quota(
            {prefix + key.replace("_", "."): v for key, v in annotations.items()}
        )

    assert quota(max_cpu="1") == {"vcore": 1000}
    assert quota(max_memory="128M") == {"memory": 128_000_000}
    assert quota(max_cpu="1", max_memory="128M") == {"vcore": 1000, "memory": 128_000_000}
    assert quota(max_cpu="error", max_memory="128M") is None
    assert quota(max_cpu="1", max_memory="error") is None
    assert quota(quota='{"cpu":"1","memory":"64M","nvidia.com/gpu":"1"}') == {
        "vcore": 1000,
        "memory": 64_000_000,
        "nvidia.com/gpu": 1,
    }
    assert quota(quota='{"cpu":"error"}', max_cpu="1") is None
    assert quota(quota='{"cpu":"1","memory":"error"}') is None
    assert quota(quota='{"cpu":"-1"}') is None
    assert quota(quota="[") is None
    assert quota() is None


def test_a_namespaces_annotations_become_the_tags_of_its_applications():
    tags = namespace_tags(
        {
            "yunikorn.apache.org/parentqueue": "root.parent",
            "yunikorn.apache.org/namespace.quota": '{"cpu": "2"}',
            "yunikorn.apache.org/namespace.guaranteed": '{"cpu": "1"}',
            "yunikorn.apache.org/namespace.maxApps": "3",
        }
    )
    assert tags == {
        "namespace.parentqueue": "root.parent",
        "namespace.resourcequota": '{"resources": {"vcore": {"value": 2000}}}',
        "namespace.resourceguaranteed": '{"resources": {"vcore": {"value": 1000}}}',
        "namespace.resourcemaxapps": "3",
    }
    assert namespace_tags({"yunikorn.apache.org/namespace.maxApps": "-1"}) == {}


# --- nothing that people send brings it down ----------------------------------------------------

WHOLE = [
    doc("v1", "Pod", **template()["spec"], schedulerName="yunikorn"),
    doc("apps/v1", "StatefulSet", replicas=1, ordinals={"start": 1}, template=template()),
    doc("apps/v1", "DaemonSet", template=template(nodeSelector={"a": "b"}, tolerations=[{"key": "a"}])),
    doc("batch/v1", "CronJob", jobTemplate={"metadata": {"annotations": {}}, "spec": {"completions": 1, "template": template()}}),
    doc("kubeflow.org/v1", "PyTorchJob", pytorchReplicaSpecs=roles(Master=1), elasticPolicy={"minReplicas": 1}, runPolicy={"schedulingPolicy": {"minAvailable": 1}}),
    doc("trainer.kubeflow.org/v1alpha1", "TrainJob", runtimeRef={"name": "torch-distributed"}, trainer={"numNodes": 1, "resourcesPerNode": {"requests": {"cpu": 1}}}),
    doc("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[{"name": "a", "replicas": 1, "template": {"spec": {"template": template()}}}]),
    doc("sparkoperator.k8s.io/v1beta2", "SparkApplication", driver={"memory": "1g", "gpu": {"name": "g", "quantity": 1}}, executor={"instances": 1}, batchSchedulerOptions={"queue": "q"}, memoryOverheadFactor="0.2"),
    doc("ray.io/v1", "RayJob", rayClusterSpec={"headGroupSpec": {"template": template()}, "workerGroupSpecs": [{"groupName": "g", "replicas": 1, "minReplicas": 1, "numOfHosts": 1, "template": template()}]}),
    doc("batch.volcano.sh/v1alpha1", "Job", minAvailable=1, tasks=[{"name": "a", "replicas": 1, "template": template()}], queue="q"),
    doc("scheduling.run.ai/v2alpha2", "PodGroup", minMember=1, subGroups=[{"name": "a", "minMember": 1}]),
    {"kind": "Namespace", "metadata": {"name": "n", "annotations": {"yunikorn.apache.org/namespace.quota": "{}"}}},
    {"kind": "PriorityClass", "metadata": {"name": "p", "annotations": {}}, "value": 1},
]  # fmt: skip
JUNK = st.sampled_from(
    [None, True, 0, -1, 2**70, 1.5, "", "x", "\x00", [], [1], [{}], {}, {"a": 1}]
)


def places(value, here=()):
    """Yield the path of everything inside a document."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inside in items:
        yield (*here, key)
        yield from places(inside, (*here, key))


@given(data=st.data())
def test_a_document_with_junk_in_it_is_taken_or_refused_and_breaks_nothing(data):
    body = deepcopy(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(list(places(body))))
        holder = body
        for key in path:
            holder = holder[key]
        holder[last] = deepcopy(data.draw(JUNK))
    result = submit(body, doc("batch/v1", "Job", template=template()))
    assert len(result.taken) + len(result.refused) == 2
