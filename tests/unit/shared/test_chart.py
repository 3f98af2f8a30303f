"""deploy/helm says what deploy/kubernetes says, and its values are judged and described."""

import base64
import copy
import json
import shutil
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from services.cli.secrets_made import kubernetes_secrets
from services.shim_adapter.backends.kubernetes.reflector import OLDEST_VERSION
from shared.bus.permissions import definitions
from shared.messages.routes import SERVICES
from tests.kubernetes.chart import BY_HAND, CHART, VALUES, helm_template, made, rendered

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import make_chart  # noqa: E402

KUSTOMIZATION = yaml.safe_load((make_chart.BASE / "kustomization.yaml").read_text())
BASE = [
    item
    for name in KUSTOMIZATION["resources"]
    if name not in make_chart.NOT_IN_IT
    for item in yaml.safe_load_all((make_chart.BASE / name).read_text())
]
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEPLOYED = {
    "core": "core",
    "timers": "timers",
    "shimAdapter": "shim-adapter",
    "api": "api",
    "admission": "admission",
}


def by_name(objects):
    found = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    assert len(found) == len(objects)
    return found


def with_values(changes):
    values = copy.deepcopy(VALUES)
    for path, value in changes.items():
        *way, last = path.split(".")
        inner = values
        for name in way:
            inner = inner[name]
        inner[last] = value
    return values


def as_in_the_base(item):
    """Return an object of the chart without what the chart alone says."""
    item = copy.deepcopy(item)
    labels = item["metadata"].pop("labels")
    assert labels["app.kubernetes.io/part-of"] == "muster"  # as the kustomization has it
    pod = item.get("spec", {}).get("template")
    if item["kind"] in ("Deployment", "StatefulSet"):
        for container in pod["spec"]["containers"]:
            if container["image"].startswith("muster:"):
                assert container.pop("imagePullPolicy") == "IfNotPresent"
                container["image"] = "muster"
        notes = pod["metadata"].get("annotations", {})
        if notes.pop("checksum/definitions", None) and not notes:
            del pod["metadata"]["annotations"]
    return item


def test_the_made_files_are_made_of_the_base_as_it_is():
    for path, text in make_chart.made_files().items():
        assert path.read_text() == text, f"{path.name} is stale: scripts/make_chart.py"
    names = {*KUSTOMIZATION["resources"], "admission.yaml"} - make_chart.NOT_IN_IT
    assert {path.name for path in made()} == names


def test_with_its_default_values_the_chart_is_the_base():
    chart = {key: as_in_the_base(item) for key, item in by_name(rendered(VALUES)).items()}
    assert chart == by_name(BASE)


def test_with_the_webhook_it_is_the_base_and_the_webhooks():
    values = with_values({"admission.enabled": True})
    chart = {key: as_in_the_base(item) for key, item in by_name(rendered(values)).items()}
    webhooks = yaml.safe_load_all((make_chart.BASE / "admission/admission.yaml").read_text())
    assert chart == by_name([*BASE, *webhooks])
    values = with_values({"admission.enabled": True, "admission.failurePolicy": "Fail"})
    policies = [
        webhook["failurePolicy"]
        for item in rendered(values, "batch")
        for webhook in item.get("webhooks", ())
    ]
    assert policies == ["Fail"] * 3
    closed = with_values({"admission.enabled": True, "networkPolicy.enabled": False})
    assert "NetworkPolicy" not in {item["kind"] for item in rendered(closed)}


def test_every_value_is_described_and_the_defaults_hold():
    jsonschema_rs.validator_for(SCHEMA).validate(VALUES)

    def walk(values, schema, path):
        assert schema["description"].count(" ") >= 1, path
        if "properties" in schema:
            assert schema["additionalProperties"] is False, path
            assert set(schema["properties"]) - {"global"} == set(values), path
            for name, value in values.items():
                walk(value, schema["properties"][name], f"{path}.{name}")

    walk(VALUES, SCHEMA, "values")


@pytest.mark.parametrize(
    "changes",
    [
        {"core.replica": 3},
        {"core.replicas": -1},
        {"core.replicas": "two"},
        {"image.pullPolicy": "Sometimes"},
        {"rabbitmq.host": "a b"},
        {"rabbitmq.port": 0},
        {"rabbitmq.storage": "much"},
        {"config": {"queues.yaml": "x"}},
        {"config": {"service.policyGroup": ["x"]}},
        {"queue": "x"},
    ],
)
def test_a_value_that_does_not_hold_is_refused(changes):
    assert not jsonschema_rs.validator_for(SCHEMA).is_valid(with_values(changes))


@pytest.mark.parametrize(("key", "name"), DEPLOYED.items())
def test_a_services_values_are_its_own(key, name):
    selector = {"disk": "ssd"}
    bears = [{"key": "infra", "operator": "Exists"}]
    values = with_values(
        {
            f"{key}.replicas": 3,
            f"{key}.tag": "6",
            f"{key}.resources": {"limits": {"memory": "8Gi"}},
            f"{key}.nodeSelector": selector,
            f"{key}.tolerations": bears,
            f"{key}.affinity": {"podAffinity": {}},
            "admission.enabled": True,
            "image": {"repository": "here/muster", "tag": "7", "pullPolicy": "Always"},
            "imagePullSecrets": [{"name": "pull"}],
        }
    )
    objects = by_name(rendered(values))
    for other in DEPLOYED.values():
        spec = objects["Deployment", other]["spec"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        mine = other == name
        image = f"here/muster:{6 if mine else 7}"
        assert (container["image"], container["imagePullPolicy"]) == (image, "Always")
        assert pod["imagePullSecrets"] == [{"name": "pull"}]
        assert (spec["replicas"] == 3) is mine
        assert (container["resources"] == {"limits": {"memory": "8Gi"}}) is mine
        placed = {field: pod.get(field) for field in ("nodeSelector", "tolerations", "affinity")}
        wanted = {"nodeSelector": selector, "tolerations": bears, "affinity": {"podAffinity": {}}}
        assert placed == (wanted if mine else dict.fromkeys(wanted))


def test_a_broker_of_ones_own_is_found_where_it_is_and_none_is_brought():
    changes = {"rabbitmq.enabled": False, "rabbitmq.host": "mq.example", "rabbitmq.port": 5671}
    objects = by_name(rendered(with_values(changes)))
    assert not [key for key in objects if "rabbitmq" in key[1] or key[1] == "only-the-broker"]
    assert ("NetworkPolicy", "nobody") in objects
    for name in set(DEPLOYED.values()) - {"admission"}:  # which speaks to no broker
        (container,) = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
        (url,) = [item["value"] for item in container["env"] if item["name"] == "MUSTER_BUS_URL"]
        assert url == f"amqp://muster-{name}@mq.example:5671/"


def test_the_broker_has_the_volume_that_is_asked_for_and_it_goes_with_it():
    values = with_values({"rabbitmq.storage": "9Gi", "rabbitmq.storageClassName": "fast"})
    broker = by_name(rendered(values))["StatefulSet", "rabbitmq"]["spec"]
    (claim,) = broker["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "9Gi"
    assert broker["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"


def test_in_another_namespace_what_belongs_to_none_has_its_name():
    objects = rendered(with_values({"admission.enabled": True}), "batch")
    cluster_wide = [item for item in objects if item["kind"] in make_chart.CLUSTER_WIDE]
    names = {item["metadata"]["name"] for item in cluster_wide}
    assert names == {"batch-shim-adapter", "batch-admission"}
    for item in objects:
        for webhook in item.get("webhooks", ()):
            assert webhook["clientConfig"]["service"]["namespace"] == "batch"
            assert "batch" in webhook["namespaceSelector"]["matchExpressions"][0]["values"]
    (named,) = [
        rule["resourceNames"]
        for item in objects
        if (item["kind"], item["metadata"]["name"]) == ("ClusterRole", "batch-admission")
        for rule in item["rules"]
        if "resourceNames" in rule
    ]
    assert named == ["batch-admission"]
    bindings = [item for item in objects if item["kind"].endswith("Binding")]
    for item in bindings:
        assert item["subjects"][0]["namespace"] == "batch"
        roles = {
            role["metadata"]["name"] for role in objects if role["kind"] == item["roleRef"]["kind"]
        }
        assert item["roleRef"]["name"] in roles
    assert "muster" not in {item["metadata"].get("namespace") for item in objects}


def test_without_network_policies_there_is_none():
    objects = rendered(with_values({"networkPolicy.enabled": False}))
    assert "NetworkPolicy" not in {item["kind"] for item in objects}


def test_whatever_a_service_makes_is_the_charts_so_that_it_goes_with_it():
    """The Lease; Secrets and ConfigMaps are in the templates by hand."""
    assert ("Lease", "muster-shim-adapter") in by_name(rendered(VALUES))
    by_hand = "".join((CHART / "templates" / name).read_text() for name in sorted(BY_HAND))
    for item in kubernetes_secrets("muster"):
        name = item["metadata"]["name"]
        assert f"name: {name}" in by_hand or f'"{name.removeprefix("bus-")}"' in by_hand
    for item in KUSTOMIZATION["configMapGenerator"]:
        assert f"name: {item['name']}" in by_hand


def test_versions_are_those_of_the_program():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert chart["kubeVersion"] == f">={OLDEST_VERSION}.0-0"
    assert KUSTOMIZATION["images"] == [{"name": "muster", "newTag": version}]


def test_helm_renders_secrets_that_fit_one_another():
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("no helm here")
    subprocess.run([helm, "lint", "--strict", str(CHART)], check=True)
    objects = by_name([item for item in yaml.safe_load_all(helm_template(helm, {})) if item])
    check_secrets(objects)
    without = helm_template(helm, {"secrets": {"create": False}})
    assert "Secret" not in {item["kind"] for item in yaml.safe_load_all(without) if item}


def check_secrets(objects):
    """The broker knows the passwords that the services have, and nothing else differs."""
    secrets = {
        name: {key: base64.b64decode(value).decode() for key, value in item["data"].items()}
        for (kind, name), item in objects.items()
        if kind == "Secret"
    }
    assert set(secrets) == {item["metadata"]["name"] for item in kubernetes_secrets("muster")}
    passwords = {
        service: secrets[f"bus-{service.replace('_', '-')}"]["password"] for service in SERVICES
    }
    assert len(set(passwords.values())) == len(SERVICES)
    assert min(map(len, passwords.values())) >= 43
    known = json.loads(secrets["broker"]["definitions.json"])
    for service, user in zip(SERVICES, known["users"], strict=True):
        hashed = base64.b64decode(user["password_hash"])
        assert hashed[4:] == sha256(hashed[:4] + passwords[service].encode()).digest()
    wanted = definitions("muster", passwords)
    for user in (*known["users"], *wanted["users"]):
        user.pop("password_hash")
    assert known == wanted
    token, line = secrets["api-tokens"]["initial-token"], secrets["api-tokens"]["tokens"]
    assert line == f"initial operate {sha256(token.encode()).hexdigest()}\n"
