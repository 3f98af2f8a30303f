"""YuniKorn's own manifests: each is accepted, or refused with document, field and a sentence."""

from services.api.documents import DocumentsError, read_documents
from services.shim_adapter.translation.manifests import translate

# What is refused, and why; everything else of yunikorn-* must be accepted.
REFUSED = {
    "authz__priority__nginx-sue.yaml": None,
    "gang_spark-driver-annotations.yaml": ("kind", "a document needs a kind"),
    "workload_run_mpi.yaml": ("kind", "not supported yet: MPIJob"),
    "workload_run_nvidia.yaml": ("spec.schedulerName", "must be yunikorn"),
    "workload_run_tensorflow.yaml": ("kind", "not supported yet: TFJob"),
    "mpioperator__Pi__pi.yaml": ("kind", "not supported yet: MPIJob"),
    "nginx__nginx.yaml": ("kind", "not supported yet: Deployment"),
    "predicates__pod-with-toleration.yaml": ("spec.schedulerName", "must be yunikorn"),
    "spark__driver.yaml": ("metadata.name", "a name or generateName is needed"),
    "spark__executor.yaml": ("metadata.name", "a name or generateName is needed"),
    "test__e2e__testdata__spark_pod_template.yaml": (
        "metadata.name",
        "a name or generateName is needed",
    ),
    "tfjob__tf-job-mnist.yaml": ("kind", "not supported yet: TFJob"),
}


def test_every_yunikorn_manifest_is_accepted_or_refused_with_a_sentence(shared_data):
    files = sorted((shared_data / "data/manifests").glob("yunikorn-*/*.yaml"))
    assert len(files) > 20
    for file in files:
        try:
            documents = read_documents(file.read_bytes(), file.name)
        except DocumentsError as error:
            raise AssertionError(f"{file.name}: {error}") from error
        result = translate(documents, default_run_ns=1)
        expected = REFUSED.get(file.name)
        if expected is None:
            assert result.refused == [], (file.name, [str(e) for _, e in result.refused])
            assert all(
                document.pods or document.kind == "PriorityClass" for document in result.taken
            )
            continue
        (refusal,) = {(error.field_path, error.message) for _, error in result.refused}
        assert refusal[0] == expected[0], file.name
        assert expected[1] in refusal[1], file.name


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
