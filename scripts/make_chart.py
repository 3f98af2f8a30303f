"""Makes the Helm chart's templates of deploy/kubernetes: what is said there is said once.

    PYTHONPATH=. .venv/bin/python scripts/make_chart.py           # writes deploy/helm
    PYTHONPATH=. .venv/bin/python scripts/make_chart.py --check   # fails when a file is stale

Rule 1: a template is the file of the base, line by line. Where a value has a say, its place in the
        base becomes an action, and the value's default (values.yaml) is what stands in the base; a
        test renders the defaults and compares.
Rule 2: actions have the few forms below and no logic beyond `if` and `with`; the rest is in
        _helpers.tpl.
Rule 3: what the base has no counterpart for (Secrets, ConfigMaps, notes) is written by hand, in
        deploy/helm/templates. Nothing here touches those files.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from shared.bus.permissions import definitions
from shared.messages.routes import SERVICES

DEPLOY = Path(__file__).parents[1] / "deploy"
BASE, CHART = DEPLOY / "kubernetes", DEPLOY / "helm"
PREFIX = "muster"
VALUES_OF = {
    "core.yaml": "core",
    "timers.yaml": "timers",
    "shim-adapter.yaml": "shimAdapter",
    "api.yaml": "api",
    "rabbitmq.yaml": "rabbitmq",
    "admission.yaml": "admission",
}
ONLY_IF = {  # a file, or documents of it by name or kind: only where the value holds
    "rabbitmq.yaml": "rabbitmq.enabled",
    "network.yaml": "networkPolicy.enabled",
    "admission.yaml": "admission.enabled",
    "admission.yaml NetworkPolicy": "networkPolicy.enabled",
    "network.yaml rabbitmq": "rabbitmq.enabled",
    "network.yaml only-the-broker": "rabbitmq.enabled",
}
CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
}
OF_A_CLUSTER = ("rabbitmq.cluster.conf", "rabbitmq.cluster.advanced.config")
NOT_IN_IT = {"namespace.yaml"}  # helm install --create-namespace
_LABELS = '  labels:\n    {{- include "muster.labels" . | nindent 4 }}\n'
_NAMESPACE = '"{{ .Release.Namespace }}"'
_SECRETS = (
    "      {{- with .Values.imagePullSecrets }}\n"
    "      imagePullSecrets:\n"
    "        {{- toYaml . | nindent 8 }}\n"
    "      {{- end }}\n"
)
_PRIORITY = (
    "      {{{{- with {values}.priorityClassName }}}}\n"
    "      priorityClassName: {{{{ . }}}}\n"
    "      {{{{- end }}}}\n"
)
_ENV = (
    "            {{{{- with {values}.env }}}}\n"
    "            {{{{- toYaml . | nindent 12 }}}}\n"
    "            {{{{- end }}}}\n"
)
_CHECKSUM = (
    "      annotations:\n"
    '        checksum/definitions: {{ .Files.Get "files/definitions.json" | sha256sum }}\n'
)
_STORAGE = (
    "        {{- with .Values.rabbitmq.storageClassName }}\n"
    "        storageClassName: {{ . }}\n"
    "        {{- end }}\n"
)


_SEVERAL = "{{- if gt (int .Values.rabbitmq.replicas) 1 }}"
_APART = """\
      {{- else }}{{- if gt (int .Values.rabbitmq.replicas) 1 }}
      affinity:  # two on one machine go with it, and with them what each queue needs to go on
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels: {app.kubernetes.io/name: rabbitmq}
      {{- end }}{{- end }}
"""
_OWN_COOKIE = (
    "umask 077 && cp -f /etc/rabbitmq/muster/erlang-cookie /var/lib/rabbitmq/.erlang.cookie && "
    "chmod 400 /var/lib/rabbitmq/.erlang.cookie && exec rabbitmq-server"
)
# What several brokers have beside what one has, behind the line of the base that it follows.
_OF_SEVERAL = {
    "  serviceName: rabbitmq\n": "  podManagementPolicy: Parallel  # each waits for the others\n",
    "          image: {{ .Values.rabbitmq.image }}\n": (
        f'          args: [sh, -c, "{_OWN_COOKIE}"]\n'
    ),
    '            - {name: RABBITMQ_LOGS, value: "-"}\n': (
        "            - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}\n"
        '            - {name: RABBITMQ_USE_LONGNAME, value: "true"}\n'
        "            - name: RABBITMQ_NODENAME\n"
        '              value: "rabbit@$(POD_NAME).rabbitmq.{{ .Release.Namespace }}.svc"\n'
    ),
    "            - {name: amqp, containerPort: 5672, protocol: TCP}\n": (
        "            - {name: epmd, containerPort: 4369, protocol: TCP}\n"
        "            - {name: nodes, containerPort: 25672, protocol: TCP}\n"
    ),
    "              subPath: rabbitmq.conf\n              readOnly: true\n": (
        "            - name: conf\n"
        "              mountPath: /etc/rabbitmq/conf.d/30-cluster.conf\n"
        "              subPath: cluster.conf\n"
        "              readOnly: true\n"
        "            - name: conf\n"
        "              mountPath: /etc/rabbitmq/advanced.config\n"
        "              subPath: advanced.config\n"
        "              readOnly: true\n"
    ),
    "  clusterIP: None\n": "  publishNotReadyAddresses: true  # they find each other before\n",
}
_TO_BROKERS = "[{port: 4369, protocol: TCP}, {port: 25672, protocol: TCP}]"
_BROKERS = "[{podSelector: {matchLabels: {app.kubernetes.io/name: rabbitmq}}}]"


def made_files() -> dict[Path, str]:
    """Return what the chart's made files should have."""
    kustomization = yaml.safe_load((BASE / "kustomization.yaml").read_text())
    names = [name for name in kustomization["resources"] if name not in NOT_IN_IT]
    paths = [*(BASE / name for name in names), BASE / "admission" / "admission.yaml"]
    return {
        **{
            CHART / "templates" / path.name: template(path.name, path.read_text()) for path in paths
        },
        CHART / "files" / "definitions.json": _definitions(),
        CHART / "files" / "queues.yaml": (BASE / "queues.yaml").read_text(),
        CHART / "files" / "rabbitmq.conf": (BASE / "rabbitmq.conf").read_text(),
        **{CHART / "files" / name: (DEPLOY / name).read_text() for name in OF_A_CLUSTER},
        CHART / "README.md": _values_page(),
    }


def template(name: str, text: str) -> str:
    """Return a file of the base as a template."""
    key = VALUES_OF.get(name, "")
    text = re.sub(r"^(metadata:\n  name: \S+\n)", rf"\1{_LABELS}", text, flags=re.MULTILINE)
    for place in ("namespace: muster", "values: [muster"):
        text = re.sub(rf"{re.escape(place)}\b", place.replace("muster", _NAMESPACE), text)
    policy = "    failurePolicy: {{ .Values.admission.failurePolicy }}"
    text = re.sub(r"^    failurePolicy: Ignore$", policy, text, flags=re.MULTILINE)
    if key:
        text = _pods(key, text)
    if key == "rabbitmq":
        text = _broker(text)
    elif key:
        text = _service(key, text)
    if name == "network.yaml":
        text = _between_brokers(text)
    documents = map(_cluster_names, text.split("---\n"))
    text = "---\n".join(_only_if(name, item) for item in documents)
    if name in ONLY_IF:
        text = _within(ONLY_IF[name], text)
    return f"{{{{- /* Made of deploy/kubernetes/{name} by scripts/make_chart.py. */ -}}}}\n{text}"


def _cluster_names(document: str) -> str:
    """Give what belongs to no namespace the release's namespace in its name."""
    kind = re.search(r"^kind: (\S+)$", document, re.MULTILINE)
    if kind is None or kind[1] not in CLUSTER_WIDE:
        return document
    name = '"{{ .Release.Namespace }}-\\1"'
    return re.sub(r"\bmuster-(shim-adapter|admission)(?=[]}\n])", name, document)


def _pods(key: str, text: str) -> str:
    values = f".Values.{key}"
    placed = "".join(
        f"      {{{{- with {values}.{field} }}}}\n"
        f"      {field}:\n"
        f"        {{{{- toYaml . | nindent 8 }}}}\n"
        f"      {{{{- end }}}}\n"
        for field in ("nodeSelector", "tolerations", "affinity")
    )
    priority = _PRIORITY.format(values=values)
    text = text.replace("    spec:\n", f"    spec:\n{_SECRETS}{priority}{placed}", 1)
    return re.sub(
        r"^          resources:\n(?:            .*\n)+",
        f"          resources:\n            {{{{- toYaml {values}.resources | nindent 12 }}}}\n",
        text, flags=re.MULTILINE,
    )  # fmt: skip


def _service(key: str, text: str) -> str:
    values = f".Values.{key}"
    replicas = f"  replicas: {{{{ {values}.replicas }}}}"
    text = re.sub(r"^  replicas: \d+$", replicas, text, flags=re.MULTILINE)
    text = text.replace(
        "          image: muster\n",
        f"          image: {{{{ .Values.image.repository }}}}{{{{ {values}.tag "
        '| default .Values.image.tag | default .Chart.AppVersion | include "muster.version" }}\n'
        "          imagePullPolicy: {{ .Values.image.pullPolicy }}\n",
    )
    text = text.replace("          ports:\n", f"{_ENV.format(values=values)}          ports:\n", 1)
    return text.replace("@rabbitmq:5672/", '@{{ include "muster.broker" . }}/')


def _broker(text: str) -> str:
    text = re.sub(r"image: rabbitmq:\S+", "image: {{ .Values.rabbitmq.image }}", text)
    text = text.replace("  replicas: 1\n", "  replicas: {{ .Values.rabbitmq.replicas }}\n", 1)
    text = text.replace("{storage: 4Gi}", '{storage: "{{ .Values.rabbitmq.storage }}"}')
    text = text.replace("        accessModes:", f"{_STORAGE}        accessModes:")
    name = "      labels: {app.kubernetes.io/name: rabbitmq}\n"
    text = text.replace(name, name + _CHECKSUM, 1)
    place = text.index("      {{- end }}\n", text.index("      affinity:\n"))
    text = text[:place] + _APART + text[place:].removeprefix("      {{- end }}\n")
    for line, more in _OF_SEVERAL.items():
        text = _behind(line, more, text)
    return text


def _behind(line: str, more: str, text: str) -> str:
    """Put what only several brokers have behind a line of the base, which must be there."""
    before, found, after = text.partition(line)
    if not found:
        raise ValueError(f"the base has no line {line!r}")
    indent = more[: len(more) - len(more.lstrip())]
    return f"{before}{found}{indent}{_SEVERAL}\n{more}{indent}{{{{- end }}}}\n{after}"


def _between_brokers(text: str) -> str:
    """Let several brokers speak to each other, in both directions."""
    start = text.index("  name: rabbitmq\n")
    head, policy = text[:start], text[start:]
    rule = "    - {}: {}\n      ports: {}\n"
    inwards = rule.format("from", _BROKERS, _TO_BROKERS)
    outwards = rule.format("to", _BROKERS, _TO_BROKERS)
    policy = _behind("      ports: [{port: amqp, protocol: TCP}]\n", inwards, policy)
    return head + _behind("  egress:\n", outwards, policy)


def _only_if(name: str, document: str) -> str:
    said = re.findall(r"^(?:kind: |  name: )(\S+)$", document, re.MULTILINE)
    value = next((ONLY_IF[f"{name} {word}"] for word in said if f"{name} {word}" in ONLY_IF), "")
    return _within(value, document) if value else document


def _within(value: str, text: str) -> str:
    return f"{{{{- if .Values.{value} }}}}\n{text}{{{{- end }}}}\n"


def _definitions() -> str:
    """Return the broker's definitions with a mark where templates/secrets.yaml puts each hash."""
    value: dict[str, Any] = definitions(PREFIX, dict.fromkeys(SERVICES, ""))
    for service, user in zip(SERVICES, value["users"], strict=True):
        user["password_hash"] = f"@{service.replace('_', '-')}@"
    return json.dumps(value, indent=1) + "\n"


_PAGE = """\
# The chart's values
Made of `values.yaml` and `values.schema.json` by `scripts/make_chart.py`. How to install, upgrade
and remove it stands in [docs/kubernetes.md](../../docs/kubernetes.md).

| value | default | what it is |
|---|---|---|
"""


def _values_page() -> str:
    """Return a table of every value with its default and its sentence."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    rows = _value_rows("", values, schema["properties"], schema["definitions"])
    return _PAGE + "".join(rows)


def _value_rows(
    path: str, values: dict[str, Any], schemas: dict[str, Any], definitions: dict[str, Any]
) -> list[str]:
    rows: list[str] = []
    for name, value in values.items():
        schema, where = meant(schemas[name], definitions), f"{path}{name}"
        if value and "patternProperties" not in schema and "properties" in schemas[name]:
            rows.append(f"| **`{where}`** | | {schema['description']} |\n")
            rows += _value_rows(f"{where}.", value, schema["properties"], definitions)
        else:
            rows.append(f"| `{where}` | `{json.dumps(value)}` | {schema['description']} |\n")
    return rows


def meant(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with what it refers to; its own words come first."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return {**definitions[name], **schema} if name else schema


def main() -> int:
    """Write or check the files."""
    files = made_files()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        name = path.relative_to(DEPLOY.parent)
        if "--check" in sys.argv:
            print(f"{name} is stale: run PYTHONPATH=. .venv/bin/python scripts/make_chart.py")
        else:
            path.write_text(files[path])
            print(f"wrote {name}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
