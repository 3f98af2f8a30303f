"""deploy/kubernetes, checked by parsing, and by kustomize where there is a kubectl."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from services.core.configuration import parse_configuration
from shared.runtime.settings import Settings

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
OBJECTS = [
    document
    for name in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((FOLDER / name).read_text())
]
KNOWN = {f"MUSTER_{name}".upper() for name in Settings.model_fields}
SERVICES = {"core": "core", "timers": "timers", "shim-adapter": "shim_adapter", "api": "api"}


def of_kind(kind):
    return {item["metadata"]["name"]: item for item in OBJECTS if item["kind"] == kind}


def pod_of(name):
    return of_kind("Deployment")[name]["spec"]["template"]["spec"]


def test_every_file_of_the_folder_is_in_the_kustomization():
    files = {path.name for path in FOLDER.glob("*.yaml")}
    assert files == {*KUSTOMIZATION["resources"], "kustomization.yaml", "queues.yaml"}
    parse_configuration((FOLDER / "queues.yaml").read_text())


@pytest.mark.parametrize(("name", "module"), SERVICES.items())
def test_a_service_runs_its_module_as_nobody_in_particular(name, module):
    pod = pod_of(name)
    (container,) = pod["containers"]
    assert container["command"] == ["python", "-m", f"services.{module}"]
    assert importlib.util.find_spec(f"services.{module}.__main__") is not None
    assert container["image"] == KUSTOMIZATION["images"][0]["name"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)
    assert container["resources"]["requests"]
    assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_variable_is_one_that_a_service_knows_and_no_other_is_injected(name):
    """A Service named muster-x would inject MUSTER_X_PORT, which no service knows."""
    pod = pod_of(name)
    (container,) = pod["containers"]
    given = {item["name"] for item in container["env"]}
    assert {key for key in given if key.startswith("MUSTER_")} <= KNOWN
    assert pod["enableServiceLinks"] is False


def test_only_the_shim_adapter_has_a_token():
    for name in SERVICES:
        assert pod_of(name)["automountServiceAccountToken"] is (name == "shim-adapter")
    assert pod_of("shim-adapter")["serviceAccountName"] in of_kind("ServiceAccount")
    bindings = [*of_kind("RoleBinding").values(), *of_kind("ClusterRoleBinding").values()]
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == ("shim-adapter", "muster")


def test_everything_that_runs_may_be_drained_one_at_a_time():
    budgets = of_kind("PodDisruptionBudget")
    assert set(budgets) == {*SERVICES, "rabbitmq"}
    for name, budget in budgets.items():
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/name": name}


def test_kustomize_builds_it():
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here")
    built = subprocess.run([kubectl, "kustomize", str(FOLDER)], capture_output=True, check=True)
    objects = list(yaml.safe_load_all(built.stdout))
    names = {(item["kind"], item["metadata"]["name"]) for item in objects}
    assert ("ConfigMap", "yunikorn-configs") in names
    assert ("Secret", "broker") in names
    namespaced = [item for item in objects if not item["kind"].startswith(("Cluster", "Namespace"))]
    assert {item["metadata"]["namespace"] for item in namespaced} == {"muster"}
