"""deploy/helm by helm itself: what deploy/kubernetes says, its values judged and described."""

import base64
import copy
import json
import re
import sys
import tarfile
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
from tests.kubernetes.chart import CHART, VALUES, helm, made, rendered, run_helm
from tests.kubernetes.tools import NEW, OLD
from tests.table import each_row

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
GENERATED = {"ConfigMap", "Secret"}  # of the base by kustomize, and by `muster secrets`
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
WEBHOOK = {"admission": {"enabled": True}}
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")
DEPLOYED = {
    "core": "core",
    "timers": "timers",
    "shimAdapter": "shim-adapter",
    "api": "api",
    "admission": "admission",
}


def by_name(objects):
    objects = list(objects)
    found = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    assert len(found) == len(objects)
    return found


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


def without_generated(objects):
    kept = [item for item in objects if (item["kind"] not in GENERATED or "data" not in item)]
    return {key: as_in_the_base(item) for key, item in by_name(kept).items()}


def test_the_made_files_are_made_of_the_base_as_it_is():
    for path, text in make_chart.made_files().items():
        assert path.read_text() == text, f"{path.name} is stale: scripts/make_chart.py"
    names = {*KUSTOMIZATION["resources"], "admission.yaml"} - make_chart.NOT_IN_IT
    assert {path.name for path in made()} == names


@pytest.mark.parametrize("version", [OLD, NEW])
def test_with_its_default_values_the_chart_is_the_base(version):
    assert without_generated(rendered({}, version=version)) == by_name(BASE)


def test_with_the_webhook_it_is_the_base_and_the_webhooks():
    webhooks = yaml.safe_load_all((make_chart.BASE / "admission/admission.yaml").read_text())
    assert without_generated(rendered(WEBHOOK)) == by_name([*BASE, *webhooks])
    policies = [
        webhook["failurePolicy"]
        for item in rendered({"admission": {"enabled": True, "failurePolicy": "Fail"}}, "batch")
        for webhook in item.get("webhooks", ())
    ]
    assert policies == ["Fail"] * 3
    closed = rendered({**WEBHOOK, "networkPolicy": {"enabled": False}})
    assert "NetworkPolicy" not in {item["kind"] for item in closed}


def test_every_value_is_described_and_the_defaults_hold():
    jsonschema_rs.validator_for(SCHEMA).validate(VALUES)

    def walk(values, schema, path):
        meant = make_chart.meant(schema, SCHEMA["definitions"])
        assert meant["description"].count(" ") >= 1, path
        if values and "properties" in schema and "patternProperties" not in schema:
            assert schema["additionalProperties"] is False, path
            assert set(schema["properties"]) - {"global"} == set(values), path
            for name, value in values.items():
                walk(value, schema["properties"][name], f"{path}.{name}")

    walk(VALUES, SCHEMA, "values")


@each_row("version", [OLD, NEW])
@each_row(
    ("values", "where"),
    [
        ({"core": {"replica": 3}}, "replica"),
        ({"core": {"replicas": -1}}, "core/replicas"),
        ({"core": {"replicas": "two"}}, "core/replicas"),
        ({"core": {"tag": "sha256:7"}}, "core/tag"),
        ({"core": {"env": {"MUSTER_LOG_LEVEL": "debug"}}}, "core/env"),
        ({"api": {"resources": {"limit": {"cpu": 1}}}}, "api/resources"),
        ({"image": {"pullPolicy": "Sometimes"}}, "image/pullPolicy"),
        ({"image": {"repository": "here/muster@sha256:7"}}, "image/repository"),
        ({"rabbitmq": {"host": "a b"}}, "rabbitmq/host"),
        ({"rabbitmq": {"port": 0}}, "rabbitmq/port"),
        ({"rabbitmq": {"hosts": ["one"]}}, "rabbitmq/hosts"),
        ({"rabbitmq": {"replicas": 2}}, "rabbitmq/replicas"),
        ({"rabbitmq": {"storage": "much"}}, "rabbitmq/storage"),
        ({"config": {"queues.yaml": "x"}}, "config/queues.yaml"),
        ({"config": {"service.policyGroup": ["x"]}}, "config/service.policyGroup"),
        ({"config": {"a b": "x"}}, "config/a b"),
        ({"queue": "x"}, "queue"),
    ],
)
def test_a_value_that_does_not_hold_is_refused_where_it_stands(values, where, version):
    done = run_helm("template", "muster", str(CHART), values=values, version=version)
    assert done.returncode
    assert all(name in done.stderr for name in where.split("/"))
    assert "muster:\n- " in done.stderr  # a line for each value, of this chart


def test_an_older_kubernetes_is_refused():
    oldest = int(OLDEST_VERSION.partition(".")[2])
    words = ("template", "muster", str(CHART), "--kube-version")
    assert run_helm(*words, f"1.{oldest}.0-eks-1").returncode == 0
    refused = run_helm(*words, f"1.{oldest - 1}.9")
    assert f">={OLDEST_VERSION}.0-0" in refused.stderr


@each_row(("key", "name"), DEPLOYED.items())
def test_a_services_values_are_its_own(key, name):
    mine = {
        "replicas": 3,
        "tag": "6",
        "resources": {"limits": {"memory": "8Gi"}},
        "env": [{"name": "MUSTER_LOG_LEVEL", "value": "debug"}],
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"podAffinity": {}},
    }
    image = {"repository": "here/muster", "tag": "7", "pullPolicy": "Always"}
    pulled = {"image": image, "imagePullSecrets": [{"name": "pull"}]}
    objects = by_name(rendered({**WEBHOOK, **pulled, key: {**WEBHOOK.get(key, {}), **mine}}))
    for other_key, other in DEPLOYED.items():
        is_mine = other == name
        spec = objects["Deployment", other]["spec"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        wanted = f"here/muster:{6 if is_mine else 7}"
        assert (container["image"], container["imagePullPolicy"]) == (wanted, "Always")
        assert pod["imagePullSecrets"] == [{"name": "pull"}]
        assert (spec["replicas"] == 3) is is_mine
        resources = copy.deepcopy(VALUES[other_key]["resources"])
        if is_mine:
            resources["limits"]["memory"] = "8Gi"  # what is not said stays, as helm has it
        assert container["resources"] == resources
        assert (container["env"][-1] == mine["env"][0]) is is_mine
        fields = ("priorityClassName", "nodeSelector", "tolerations", "affinity")
        placed = {field: pod[field] for field in fields if field in pod}
        assert placed == ({field: mine[field] for field in fields} if is_mine else {})


def test_an_image_may_be_said_by_its_digest():
    new, old = f"sha256:{7:064x}", f"sha256:{6:064x}"
    broker = f"rabbitmq@sha256:{5:064x}"
    values = {"image": {"tag": new}, "core": {"tag": old}, "rabbitmq": {"image": broker}}
    images = {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]["containers"][0]["image"]
        for item in rendered(values)
        if item["kind"] in ("Deployment", "StatefulSet")
    }
    others = dict.fromkeys(("timers", "shim-adapter", "api"), f"muster@{new}")
    assert images == {"core": f"muster@{old}", "rabbitmq": broker, **others}


def test_a_broker_of_ones_own_is_found_where_it_is_and_none_is_brought():
    mine = {"enabled": False, "host": "mq.example", "port": 5671}
    objects = by_name(rendered({"rabbitmq": mine}))
    assert not [key for key in objects if "rabbitmq" in key[1] or key[1] == "only-the-broker"]
    assert ("NetworkPolicy", "default-deny") in objects
    assert broker_urls(objects) == {
        name: f"amqp://muster-{name}@mq.example:5671/"
        for name in ("core", "timers", "shim-adapter", "api")
    }
    brought = by_name(rendered({"rabbitmq": {**mine, "enabled": True}}))
    assert set(broker_urls(brought).values()) == {
        f"amqp://muster-{name}@rabbitmq:5672/" for name in broker_urls(brought)
    }


def test_each_service_is_given_all_nodes_of_a_cluster_of_brokers_of_ones_own():
    hosts = ["mq-0.mq.svc:5672", "mq-1.mq.svc:5672", "mq-2.mq.svc:5672"]
    found = broker_urls(by_name(rendered({"rabbitmq": {"enabled": False, "hosts": hosts}})))
    assert found == {
        name: f"amqp://muster-{name}@{','.join(hosts)}/"
        for name in ("core", "timers", "shim-adapter", "api")
    }


@pytest.mark.parametrize("version", [OLD, NEW])
def test_three_brokers_are_a_cluster_of_which_each_service_is_given_every_node(version):
    values = {"rabbitmq": {"replicas": 3}}
    objects = by_name(rendered(values, "batch", version))
    names = [f"rabbitmq-{at}.rabbitmq" for at in range(3)]
    hosts = ",".join(f"{name}:5672" for name in names)
    assert broker_urls(objects) == {
        name: f"amqp://muster-{name}@{hosts}/" for name in ("core", "timers", "shim-adapter", "api")
    }
    brokers = objects["StatefulSet", "rabbitmq"]["spec"]
    assert (brokers["replicas"], brokers["podManagementPolicy"]) == (3, "Parallel")
    conf = objects["ConfigMap", "rabbitmq"]["data"]
    said = dict(line.split(" = ") for line in conf["cluster.conf"].splitlines() if "=" in line)
    assert [said[f"cluster_formation.classic_config.nodes.{at + 1}"] for at in range(3)] == [
        f"rabbit@{name}.batch.svc" for name in names
    ]
    assert said["cluster_formation.target_cluster_size_hint"] == "3"  # queues wait for the third
    advanced = ROOT / "deploy/rabbitmq.cluster.advanced.config"
    assert conf["advanced.config"] == advanced.read_text().strip()
    pod = brokers["template"]["spec"]
    (container,) = pod["containers"]
    variables = {item["name"]: item.get("value") for item in container["env"]}
    assert variables["RABBITMQ_NODENAME"] == "rabbit@$(POD_NAME).rabbitmq.batch.svc"
    places = {mount["mountPath"]: mount.get("subPath") for mount in container["volumeMounts"]}
    assert places["/etc/rabbitmq/conf.d/30-cluster.conf"] == "cluster.conf"
    assert places["/etc/rabbitmq/advanced.config"] == "advanced.config"
    cookie = base64.b64decode(objects["Secret", "broker"]["data"]["erlang-cookie"])
    assert len(cookie) >= 43
    assert "/etc/rabbitmq/muster/erlang-cookie" in container["args"][2]
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == "kubernetes.io/hostname"
    assert objects["PodDisruptionBudget", "rabbitmq"]["spec"]["maxUnavailable"] == 1
    assert objects["Service", "rabbitmq"]["spec"]["publishNotReadyAddresses"] is True


def test_brokers_of_a_cluster_may_speak_to_each_other_and_nobody_else_to_them_in_their_tongue():
    policy = by_name(rendered({"rabbitmq": {"replicas": 3}}))["NetworkPolicy", "rabbitmq"]["spec"]
    between = [
        (way, rule["from" if way == "ingress" else "to"])
        for way in ("ingress", "egress")
        for rule in policy[way]
        if {port["port"] for port in rule["ports"]} == {4369, 25672}
    ]
    brokers = [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "rabbitmq"}}}]
    assert between == [("ingress", brokers), ("egress", brokers)]
    ports = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    assert ports == ["amqp", 4369, 25672]


def test_an_affinity_of_ones_own_takes_the_place_of_the_brokers_being_apart():
    mine = {"nodeAffinity": {}}
    objects = by_name(rendered({"rabbitmq": {"replicas": 3, "affinity": mine}}))
    assert objects["StatefulSet", "rabbitmq"]["spec"]["template"]["spec"]["affinity"] == mine


def broker_urls(objects):
    return {
        name: item["value"]
        for (kind, name), found in objects.items()
        if kind == "Deployment"
        for item in found["spec"]["template"]["spec"]["containers"][0]["env"]
        if item["name"] == "MUSTER_BUS_URL"
    }


def test_the_broker_has_the_volume_that_is_asked_for_and_it_goes_with_it():
    values = {"rabbitmq": {"storage": "9Gi", "storageClassName": "fast"}}
    broker = by_name(rendered(values))["StatefulSet", "rabbitmq"]["spec"]
    (claim,) = broker["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "9Gi"
    assert broker["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"


def test_in_another_namespace_what_belongs_to_none_has_its_name():
    objects = rendered(WEBHOOK, "batch")
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


def test_names_and_labels_are_short_enough_however_long_those_of_the_release_are(tmp_path):
    """A release's name has 53 characters at most, says helm; a namespace's 63; a label's value 63."""
    version = f"1.2.3+{'build.' * 20}7"
    words = ("--version", version, "--app-version", version, "--destination", str(tmp_path))
    helm("package", str(CHART), *words)
    (package,) = tmp_path.iterdir()
    words = ("template", "r" * 53, str(package), f"--namespace={'n' * 63}")
    for item in filter(None, yaml.safe_load_all(helm(*words, values=WEBHOOK))):
        labels = item["metadata"]["labels"]
        assert labels["helm.sh/chart"].startswith("muster-1.2.3_build.")
        assert all(LABEL_VALUE.fullmatch(value) for value in labels.values())
        is_wide = item["kind"] in make_chart.CLUSTER_WIDE
        assert len(item["metadata"]["name"]) <= (253 if is_wide else 63)
        assert ("n" * 63 in item["metadata"]["name"]) is is_wide


def test_the_package_has_what_the_chart_needs_and_nothing_else(tmp_path):
    helm("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        names = set(archive.getnames())
    files = {path for path in CHART.rglob("*") if path.is_file()}
    assert names == {f"muster/{path.relative_to(CHART)}" for path in files}
    packed = yaml.safe_load_all(helm("template", "x", str(package), "--namespace=muster"))
    assert set(by_name(filter(None, packed))) == set(by_name(rendered({})))
    assert yaml.safe_load(helm("show", "values", str(package))) == VALUES
    assert yaml.safe_load(helm("show", "chart", str(package)))["name"] == "muster"


def test_without_network_policies_there_is_none():
    objects = rendered({"networkPolicy": {"enabled": False}})
    assert "NetworkPolicy" not in {item["kind"] for item in objects}


def test_queues_and_further_keys_are_in_the_config_map():
    values = {"queues": "partitions: []\n", "config": {"muster.scheduler.x": True, "a.b": 3}}
    data = by_name(rendered(values))["ConfigMap", "yunikorn-configs"]["data"]
    preset = {"muster.scheduler.preset": "muster"}
    said = {"queues.yaml": "partitions: []", "muster.scheduler.x": "true", "a.b": "3"}
    assert data == said | preset
    unsaid = by_name(rendered({}))["ConfigMap", "yunikorn-configs"]["data"]
    queues = (make_chart.BASE / "queues.yaml").read_text().strip()
    assert unsaid == {"queues.yaml": queues} | preset
    another = {"config": {"muster.scheduler.preset": "yunikorn"}}
    data = by_name(rendered(another))["ConfigMap", "yunikorn-configs"]["data"]
    assert data["muster.scheduler.preset"] == "yunikorn"


def test_whatever_a_service_makes_is_the_charts_so_that_it_goes_with_it():
    """The Lease, the Secrets and the ConfigMaps."""
    objects = by_name(rendered({}))
    assert ("Lease", "muster-shim-adapter") in objects
    for item in kubernetes_secrets("muster"):
        assert ("Secret", item["metadata"]["name"]) in objects
    for item in KUSTOMIZATION["configMapGenerator"]:
        assert ("ConfigMap", item["name"]) in objects


def test_versions_are_those_of_the_program():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert chart["kubeVersion"] == f">={OLDEST_VERSION}.0-0"
    assert KUSTOMIZATION["images"] == [{"name": "muster", "newTag": version}]


@pytest.mark.parametrize("version", [OLD, NEW])
def test_helm_renders_secrets_that_fit_one_another(version):
    helm("lint", "--strict", str(CHART), version=version)
    check_secrets(by_name(rendered({}, version=version)))
    without = rendered({"secrets": {"create": False}}, version=version)
    assert "Secret" not in {item["kind"] for item in without}


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
