"""Every manifest of the data folder, run to its end in the simulated cluster or refused by reason.

Each is submitted in virtual time through all four services. What it says of its gangs is checked by
counts: in a cluster without room for the gang none of its real pods runs, in one with room all do.
"""

from pathlib import Path

import pytest
import yaml

from services.api.web.documents import read_documents
from services.shim_adapter.records import NodeRecord
from services.shim_adapter.translation.manifests import translate
from tools.scenario.command import run_scenario
from tools.scenario.schema import load_scenario

DATA = Path(__file__).parent.parent.parent.parent / "shared" / "data" / "manifests"
FILES = sorted(DATA.glob("*/*.yaml"))
pytestmark = pytest.mark.data
CONFIG = {
    "partitions": [
        {
            "name": "default",
            "placementrules": [{"name": "fixed", "value": "root.all", "create": True}],
            "queues": [{"name": "root", "submitacl": "*"}],
        }
    ]
}
CAPACITY = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": 8, "pods": 110}

# What is refused, by its field and a part of the sentence; everything else must run.
REFUSED = {
    "driver-pod-annotated-by-operator.yaml": ("spec", "a map was expected, found nothing"),
    "gang_spark-driver-annotations.yaml": ("kind", "a document needs a kind"),
    "invalid_jobs__duplicatedTaskName-webhook-deny.yaml": (
        "spec.tasks",
        "duplicated task name task-1",
    ),
    "invalid_jobs__minAvailable-webhook-deny.yaml": (
        "spec.minAvailable",
        "job 'minAvailable' should not be greater than total replicas in tasks",
    ),
    "spark__driver.yaml": ("metadata.name", "a name or generateName is needed"),
    "spark__executor.yaml": ("metadata.name", "a name or generateName is needed"),
    "test__e2e__testdata__spark_pod_template.yaml": (
        "metadata.name",
        "a name or generateName is needed",
    ),
}
# How many pods each gang needs at once, and how many it has, by file and application.
GANGS = {
    "batch__external-podgroup-job.yaml": {"podgroup-external-batch-job": (2, 2)},
    "docs__batch__batch-job-min-member.yaml": {"job-batch-job-min-member": (2, 6)},
    "docs__batch__pytorch-job.yaml": {"pytorchjob-pytorch-dist-mnist-nccl": (3, 3)},
    "docs__elastic__pytorch-elastic.yaml": {"pytorchjob-elastic-example-imagenet": (1, 2)},
    "ray__ray-job.yaml": {"rayjob-rayjob-sample": (2, 4)},
    "spark-pi-yunikorn.yaml": {"sparkapplication-spark-pi-yunikorn": (3, 3)},
    "yaml__01-multi-node.yaml": {"trainjob-multi-node-example": (3, 3)},
    "yaml__03-kueue-integration.yaml": {"trainjob-kueue-example": (3, 3)},
    "yaml__04-volcano-integration.yaml": {"trainjob-volcano-example": (4, 4)},
    "jax__cpu-demo__demo.yaml": {"kubeflow-jaxjob-jaxjob-simple": (2, 2)},
    "mpi__tensorflow-mnist-elastic.yaml": {"mpijob-tensorflow-mnist-elastic": (3, 3)},
    "mpi__tensorflow-mnist.yaml": {"mpijob-tensorflow-mnist": (3, 3)},
    "paddlepaddle__simple-gpu.yaml": {"kubeflow-paddlejob-paddle-simple-gpu": (2, 2)},
    "pytorch__deepspeed-demo__pytorch_deepspeed_demo.yaml": {
        "pytorchjob-pytorch-deepspeed-demo": (2, 2)
    },
    "pytorch__elastic__imagenet__imagenet.yaml": {"pytorchjob-elastic-example-imagenet": (1, 2)},
    "pytorch__mnist__v1__pytorch_job_mnist_nccl.yaml": {
        "pytorchjob-pytorch-dist-mnist-nccl": (2, 2)
    },
    "pytorch__simple.yaml": {"kubeflow-pytorchjob-pytorch-simple": (2, 2)},
    "tensorflow__dist-mnist__tf_job_mnist.yaml": {"tfjob-dist-mnist-for-e2e-test": (4, 4)},
    "tensorflow__distribution_strategy__multi_worker_tfjob.yaml": {"tfjob-multi-worker": (2, 2)},
    "tensorflow__simple.yaml": {"kubeflow-tfjob-tfjob-simple": (2, 2)},
    "xgboost__lightgbm-dist__xgboostjob_v1_lightgbm_dist_training.yaml": {
        "xgboostjob-lightgbm-dist-train-test": (3, 3)
    },
    "MindSpore-mindspore_gpu__mindspore-gpu.yaml": {"job-mindspore-gpu": (3, 3)},
    "hierarchical-jobs__jobs.yaml": {
        f"job-{name}-job": (1, 6) for name in ("eng-prod", "eng-dev", "sci-prod", "sci-dev")
    },
    "integrations__mpi__mpi-example.yaml": {"job-lm-mpi-job": (3, 3)},
    "integrations__ray__ray-example.yaml": {"job-ray-cluster-job": (3, 3)},
    "integrations__tensorflow__dist-mnist__tf-dist-mnist-example.yaml": {
        "job-tensorflow-dist-mnist": (3, 3)
    },
    "job.yaml": {"job-test-job": (3, 6)},
    "kubecon-2019-china__task-priority__elastic-job.yaml": {"job-elastic-job": (3, 10)},
    "mpioperator__Pi__pi.yaml": {"mpijob-pi": (3, 3)},
    "tfjob__tf-job-mnist.yaml": {"tf_job_20200521_001": (6, 6)},
    "gang_gang-app-timeout.yaml": {"gang-app-timeout": (4, 4)},
    "gang_gang-scheduling-job-example.yaml": {"gang-scheduling-job-example": (2, 2)},
    "workload_run_mpi.yaml": {"mpijob-pi": (3, 3)},
    "workload_run_tensorflow.yaml": {"tf_job_20200521_001": (6, 6)},
}


def expansion(file: Path):
    documents = read_documents(file.read_bytes(), file.name)
    return translate(documents, 0, (NodeRecord("n-0", {}),))


async def play(tmp_path, file: Path, nodes: list, steps: list, before: tuple = ()) -> list:
    """Play steps before and after the file is submitted; return what failed."""
    scenario = {
        "name": file.name,
        "config": CONFIG,
        "nodes": nodes,
        "steps": [*before, {"manifests": {"file": str(file), "runSeconds": 30}}, *steps],
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(scenario, sort_keys=False))
    loaded, config = load_scenario(path)
    return (await run_scenario(path, loaded, config, "memory", 1.0)).failures


def test_the_folder_is_there_and_the_lists_name_its_files():
    names = {file.name for file in FILES}
    assert len(FILES) > 50
    assert set(REFUSED) <= names
    assert set(GANGS) <= names
    gangs = {
        file.name: {
            pod.application_id
            for doc in expansion(file).taken
            for pod in doc.pods
            if pod.task_groups or pod.gang.subgroups
        }
        for file in FILES
    }
    assert {name: apps for name, apps in gangs.items() if apps} == {
        name: set(apps) for name, apps in GANGS.items()
    }


@pytest.mark.parametrize("file", FILES or [DATA], ids=lambda file: file.stem)
async def test_a_manifest_runs_or_is_refused(tmp_path, file):
    result = expansion(file)
    if file.name in REFUSED:
        field, sentence = REFUSED[file.name]
        assert result.taken == []
        ((_, error),) = result.refused
        assert error.field_path == field
        assert sentence in error.message
        expected = {"rejected": {"manifests": sentence}, "count": [{"state": "Running", "is": 0}]}
        assert await play(tmp_path, file, [], [{"expect": expected}]) == []
        return
    assert result.refused == []
    pods = [pod for document in result.taken for pod in document.pods]
    assert pods
    applications = sorted({pod.application_id for pod in pods})
    nodes = [{"name": "n", "count": 4, "capacity": CAPACITY}]
    steps = [
        {"expect": {"count": [{"placeholder": False, "state": "Running", "is": len(pods)}]}},
        {"advance": "10m"},
        {
            "expect": {
                "count": [
                    {"placeholder": False, "state": "Succeeded", "is": len(pods)},
                    {"placeholder": True, "state": "Running", "is": 0},
                ],
                "applications": {name: {"state": "Completed"} for name in applications},
                "queues": {"root": {"allocated": {"vcore": 0, "memory": 0, "pods": 0}}},
                "invariants": True,
            }
        },
    ]
    assert await play(tmp_path, file, nodes, steps) == []


@pytest.mark.parametrize(
    ("name", "application"),
    [(name, app) for name, apps in GANGS.items() for app in apps],
    ids=[app[:30] for apps in GANGS.values() for app in apps],
)
async def test_a_gang_starts_with_all_its_members_or_with_none(tmp_path, name, application):
    """Another scheduler's pod leaves room for one member less than the gang has; then it goes."""
    file = next(file for file in FILES if file.name == name)
    least, total = GANGS[name][application]
    everybody = [pod for document in expansion(file).taken for pod in document.pods]
    pods = [pod for pod in everybody if pod.application_id == application]
    groups = next((pod.task_groups for pod in pods if pod.task_groups), ())
    parts = pods[0].gang.subgroups  # of one that starts without placeholders
    minimums = [group.min_member for group in groups] or [part.minimum for part in parts]
    assert sum(minimums) == least
    assert len(pods) == total
    room = len(everybody) + least
    nodes = [{"name": "n", "capacity": {**CAPACITY, "pods": room}}]
    other = {"name": "other", "node": "n", "requests": {"pods": room - least + 1}}

    def running(number: int) -> dict:
        count = {"app": application, "placeholder": False, "state": "Running", "is": number}
        return {"expect": {"count": [count]}}

    steps = [running(0), {"delete": {"foreign": ["other"]}}, running(total)]
    assert await play(tmp_path, file, nodes, steps, before=({"foreign": other},)) == []


def test_the_gang_example_of_the_site_is_read_as_it_is_meant(shared_data):
    file = shared_data / "data/manifests/yunikorn-site/gang_gang-app-timeout.yaml"
    (job,) = translate(read_documents(file.read_bytes(), file.name), 1).taken
    assert len(job.pods) == 4
    pod = job.pods[0]
    assert (pod.application_id, pod.queue_name, pod.task_group_name) == (
        "gang-app-timeout",
        "fifo",
        "sched-style",
    )
    assert (pod.placeholder_timeout_seconds, pod.style) == (60, "Hard")
    assert pod.task_groups[0].min_resource == {"vcore": 1000, "memory": 1_000_000_000}
    assert pod.run_ns == 30 * 10**9
