"""deploy/kubernetes, checked by parsing, and by kubectl's kustomize."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from services.cli.secrets_made import kubernetes_secrets
from services.core.configuration import parse_configuration
from services.shim_adapter.admission.server import JUDGE_SECONDS
from shared.bus.codec import MAX_MESSAGE_BYTES
from shared.runtime.settings import Settings
from tests.kubernetes.tools import NEW, OLD, program

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
WEBHOOK = list(yaml.safe_load_all((FOLDER / "admission/admission.yaml").read_text()))
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
    said = (FOLDER / "rabbitmq.conf").read_text()
    assert "definitions.json" in said
    (most,) = re.findall(r"^max_message_size = (\d+)$", said, re.MULTILINE)
    assert MAX_MESSAGE_BYTES < int(most) <= 16 * 1024 * 1024
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


def test_the_broker_is_nobody_in_particular_and_read_only():
    pod = of_kind("StatefulSet")["rabbitmq"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


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


def secrets_of(pod):
    return {item["secret"]["secretName"] for item in pod.get("volumes", []) if "secret" in item}


def test_every_secret_is_one_that_is_made_and_each_has_its_own():
    made = {item["metadata"]["name"]: item["data"] for item in kubernetes_secrets("muster")}
    broker = of_kind("StatefulSet")["rabbitmq"]["spec"]["template"]["spec"]
    used = secrets_of(broker)
    assert used == {"broker"}
    for name in SERVICES:
        own = {f"bus-{name}", *(["api-tokens"] if name == "api" else [])}
        assert secrets_of(pod_of(name)) == own
        used |= own
        environment = {
            item["name"]: item.get("value") for item in pod_of(name)["containers"][0]["env"]
        }
        assert environment["MUSTER_BUS_URL"] == f"amqp://muster-{name}@rabbitmq:5672/"
        assert environment["MUSTER_BUS_PASSWORD_FILE"] == "/run/muster/bus/password"
        assert "password" in made[f"bus-{name}"]
    assert used == set(made)
    (access,) = [item for item in pod_of("api")["volumes"] if item["name"] == "access"]
    assert access["secret"]["items"] == [{"key": "tokens", "path": "tokens"}]  # no token itself


def test_the_network_is_closed_and_opened_for_those_who_must():
    policies = of_kind("NetworkPolicy")
    assert policies["default-deny"]["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    (rule,) = policies["rabbitmq"]["spec"]["ingress"]
    (whom,) = rule["from"]
    assert whom["podSelector"]["matchExpressions"][0]["values"] == list(SERVICES)
    ports = {"amqp"}
    for name in SERVICES:
        (container,) = pod_of(name)["containers"]
        ports |= {port["name"] for port in container["ports"]}
    for policy in policies.values():
        for rule in policy["spec"].get("ingress", []):
            assert {port["port"] for port in rule["ports"]} <= ports


def test_the_webhook_runs_its_module_as_nobody_in_particular_with_rights_of_its_own():
    named = {(item["kind"], item["metadata"]["name"]): item for item in WEBHOOK}
    deployment = named["Deployment", "admission"]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    shim = pod_of("shim-adapter")
    for key in ("securityContext", "enableServiceLinks", "topologySpreadConstraints"):
        assert str(pod[key]) == str(shim[key]).replace("shim-adapter", "admission")
    for key in ("securityContext", "startupProbe", "readinessProbe", "livenessProbe"):
        assert container[key] == shim["containers"][0][key]
    assert container["command"] == ["python", "-m", "services.shim_adapter.admission"]
    assert importlib.util.find_spec("services.shim_adapter.admission.__main__") is not None
    assert {item["name"] for item in container["env"]} <= KNOWN
    assert pod["serviceAccountName"] == "admission"
    assert secrets_of(pod) == set()
    (port,) = named["Service", "admission"]["spec"]["ports"]
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    assert ports[port["targetPort"]] == Settings().admission_port
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for webhook in named[kind, "muster-admission"]["webhooks"]:
            service = webhook["clientConfig"]["service"]
            assert (service["name"], service["port"]) == ("admission", port["port"])
            assert webhook["timeoutSeconds"] > JUDGE_SECONDS
    for item in WEBHOOK:
        if item["kind"].endswith("Binding"):
            (subject,) = item["subjects"]
            assert (subject["name"], subject["namespace"]) == ("admission", "muster")


def test_everything_that_runs_may_be_drained_one_at_a_time():
    budgets = of_kind("PodDisruptionBudget")
    assert set(budgets) == {*SERVICES, "rabbitmq"}
    for name, budget in budgets.items():
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"]["matchLabels"] == {"app.kubernetes.io/name": name}


@pytest.mark.parametrize("version", [OLD, NEW])
def test_kustomize_builds_it(version):
    kubectl = program("kubectl", version)
    objects = []
    for folder in (FOLDER, FOLDER / "admission"):
        built = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, check=True)
        objects += yaml.safe_load_all(built.stdout)
    names = {(item["kind"], item["metadata"]["name"]) for item in objects}
    assert ("ConfigMap", "yunikorn-configs") in names
    secrets = [item for item in objects if item["kind"] == "Secret"]
    assert not any(item.get("data") for item in secrets)  # made, not kept in a repository
    for item in objects:
        is_wide = item["kind"].startswith(("Cluster", "Namespace")) or "webhooks" in item
        assert item["metadata"].get("namespace") == (None if is_wide else "muster")
