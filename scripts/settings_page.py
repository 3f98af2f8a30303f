"""The page of settings: each with its default and what it means.

Which settings there are is read from the code that reads them; what they mean stands there where
it can (``shared.runtime.settings``), else in words/settings.yaml. A setting without a line fails
the check, as does a line whose setting has gone.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from services.core.scheduler.model import queue_settings
from services.core.scheduler.model.queue_settings import settings_of
from services.core.scheduler.model.settings import (
    _RULES,
    AVOID_NODE_NS,
    RESERVED_FOR_HEADS_PERCENT,
)
from services.core.scheduler.model.settings import Settings as SchedulerSettings
from services.shim_adapter.admission import filters
from services.shim_adapter.backends.kubernetes import configuration
from services.shim_adapter.translation import gpu_shares, namespaces, pods, task_groups
from shared.model.duration import go_duration
from shared.model.gpus import GPU_DEVICES
from shared.model.scheduler_settings import OLD_NAMES, PRESETS, RETIRED
from shared.model.service_keys import BY_ENVIRONMENT, UNUSED
from shared.queueconfig import schema
from shared.runtime.settings import Settings

WORDS = Path(__file__).parent / "words" / "settings.yaml"
_PLAIN = SchedulerSettings()
_DEFAULTS: dict[str, Any] = {  # as words/settings.yaml calls them
    "gang_admission": _PLAIN.gang_admission,
    "reservations": _PLAIN.reservations,
    "starvation_guard": go_duration(_PLAIN.starvation_guard_ns),
    "reservation_delay": go_duration(_PLAIN.reservation_delay_ns),
    "heads_percent": RESERVED_FOR_HEADS_PERCENT,
    "reserved_nodes_least": _PLAIN.reserved_nodes_least,
    "reserved_nodes_percent": _PLAIN.reserved_nodes_percent,
    "policy": _PLAIN.policy,
    "node_score_window": f"{_PLAIN.node_score_window:,}",
    "staleness_grace": go_duration(_PLAIN.staleness_grace_ns),
    "restart_room": go_duration(_PLAIN.restart_room_ns),
    "avoid_node": go_duration(AVOID_NODE_NS),
    "stuck_after": go_duration(_PLAIN.stuck_after_ns),
    "preemption_delay": go_duration(queue_settings.DEFAULT_PREEMPTION_DELAY_NS),
    "backoff_delay": go_duration(queue_settings.DEFAULT_BACKOFF_NS),
}
_DEFAULT = re.compile(r"<(\w+)>")
_READERS = (pods, task_groups, namespaces, filters)
_NAME = re.compile(r"[\w.]+/[\w.-]+")
_PROPERTY = r'(?:get\(|properties, )"([a-z][\w.]+)"'
_KEY = r"""["']((?:service|admission\w*)\.[\w.]+)["']"""
_INTRODUCTION = """\
# Settings

Generated from the code by `scripts/make_docs.py`. See also [limits](limits.md) for values that
cannot be set, and the [command line](cli.md) for the options of `muster up`.

| where | what it controls | takes effect |
|---|---|---|
| [environment](#environment) | how one service runs | when it starts |
| [scheduler settings](#scheduler-settings) | how Muster decides, in addition to queues.yaml | \
with the \
next change of the queues, or the next start of the shim adapter |
| [queues.yaml](#queuesyaml), [properties of queues](#properties-of-queues) | the queues | at once |
| [ConfigMaps](#configmaps) | YuniKorn's own keys, on Kubernetes | at once, or with a restart |
| [labels and annotations](#labels-and-annotations) | one application, or the queue of a namespace \
| when the pod is created |

## Environment
For every service. An unknown variable that starts with `MUSTER_` ends the service with exit status
78, so that a typing error is noticed.

| variable | default | meaning |
|---|---|---|
"""
_OTHER_VARIABLES = """\
| `OTEL_EXPORTER_OTLP_ENDPOINT` | | where spans of every message are sent (`muster[otel]`, in the \
image) |
"""
_SCHEDULER = """\

## Scheduler settings
Set them below `scheduler` in a scenario file, on Kubernetes as `muster.scheduler.NAME` in the
ConfigMap `yunikorn-configs` (`config` in the values of the chart), and for `muster up` with
`--preset` and `--plugins`. The default is listed first. It replaces an invalid value, with a
warning.

| name | values | meaning |
|---|---|---|"""
_PRESETS = """\
### The three presets
The presets differ in when a gang starts, and what it holds until then. `muster up`, the Helm chart
and `deploy/kubernetes` start with `preset: muster`. Without the setting, as in a ConfigMap of
YuniKorn's own, `design` is used.

| | `muster` | `design` | `yunikorn` |
|---|---|---|---|
| a gang starts | when every member fits on a node, all at once | when all of it fits \
the maxima of its queues; then pod by pod | in part, as far as it fits, one gang after another |
| while it waits, it holds | nothing | nothing until it may start, then the places it has got | \
the \
places it has got |
| two gangs that each hold a part and block each other | never | on the nodes | on nodes and \
quota |
| a wide gang that waits | nodes are reserved for the oldest one | the head of a queue gets one \
node reserved | each pod gets a node reserved |
| smaller jobs behind it in its queue | may start first, for `starvationGuard` | the same | may \
take what the gang leaves |"""
_OLD_SETTINGS = """\
### Old names
Old names are still accepted, with a warning that gives the new one; if both are set, the old one is
ignored. Old values are accepted as well: `enabled` and `disabled` of `reservations` mean `heads`
and `none`, `whole` of `gangAdmission` means `queue`.

| old name | now |
|---|---|"""
_QUEUES = """\
## queues.yaml
YuniKorn's format, with every key. `muster config check FILE` reports errors in YuniKorn's words."""
_TABLES = {
    "properties": """\
## Properties of queues
An invalid value is ignored: the default is used, and a warning names it.
""",
    "config_maps": """\
## ConfigMaps
`yunikorn-defaults` and `yunikorn-configs`, in Muster's namespace; keys of the second override those
of the first. `queues.yaml` is one of their keys. Except for hot refresh, changes of `service.` keys
take effect when the shim adapter restarts; its log says so.

If a `service.` or `kubernetes.` key has a value of the wrong type (a duration, number or boolean
is expected), the whole update is ignored, as in YuniKorn: the log of the shim adapter says why,
and the webhook refuses it. `/ws/v1/config` shows all keys as `Extra`. YuniKorn's keys that have no
effect are listed [below](#keys-without-effect); a warning names those that are set. In the
environment of the shim adapter, `DISABLE_RESERVATION=true` means `muster.scheduler.reservations:
none` and `DISABLE_GANG_SCHEDULING=true` means `service.disableGangScheduling: true`, unless a
ConfigMap says otherwise.
""",
    "admission": """\
## The admission webhook
Keys of the same ConfigMaps, read by the [webhook](kubernetes.md#the-admission-webhook). A list is
comma-separated regular expressions; it is enough if one matches anywhere in the name. An unreadable
value is refused before it is stored.
""",
    "on_pods": """\
## Labels and annotations
YuniKorn's labels and annotations, and Muster's own. Of several with the same meaning the first one
present counts.
""",
}
_WITHOUT_EFFECT = """\
### Keys without effect

| name | use instead |
|---|---|"""
_TITLES = {
    "SchedulerConfig": "the file", "PartitionSpec": "partitions", "PreemptionSpec": "preemption",
    "NodeSortSpec": "nodesortpolicy", "ResolverSpec": "usergroupresolver", "QueueSpec": "queues",
    "ResourcesSpec": "resources", "ChildTemplateSpec": "childtemplate", "LimitSpec": "limits",
    "PlacementRuleSpec": "placementrules", "FilterSpec": "filter",
}  # fmt: skip


def settings_page() -> tuple[str, list[str]]:
    """Return the page as Markdown, and what does not hold."""
    words = yaml.safe_load(_DEFAULT.sub(lambda found: str(_DEFAULTS[found[1]]), WORDS.read_text()))
    wrong = [
        *_differ("scheduler", words["scheduler"], _RULES),
        *_differ("old_settings", words["old_settings"], (*OLD_NAMES, *RETIRED)),
        *_differ("properties", words["properties"], _read_in(settings_of, _PROPERTY)),
        *_differ("config_maps", words["config_maps"], _read_in(configuration, _KEY)),
        *_differ("admission", words["admission"], list(filters.KEYS.values())),
        *_differ("on_pods", words["on_pods"], _on_pods()),
    ]
    parts = [_INTRODUCTION + _environment() + _OTHER_VARIABLES, _SCHEDULER]
    parts += [
        f"| `{name}` | {values} | {means} |" for name, (values, means) in words["scheduler"].items()
    ]
    parts += ["", _PRESETS, *_preset_rows(), "", _OLD_SETTINGS]
    parts += [f"| `{name}` | {means} |" for name, means in words["old_settings"].items()]
    parts += ["", _QUEUES]
    for name, title in _TITLES.items():
        own = words["queues"][name]
        fields = [item.name for item in dataclasses.fields(getattr(schema, name))]
        keys = [key for key in fields if key not in ("line", "checksum")]
        wrong += _differ(f"queues: {name}", own, keys)
        parts += [f"\n### {title}", "| key | meaning |\n|---|---|"]
        parts += [f"| `{key}` | {own.get(key, '')} |" for key in keys]
    for table, before in _TABLES.items():
        parts += ["", before, "| name | meaning |\n|---|---|"]
        parts += [f"| `{name}` | {means} |" for name, means in words[table].items()]
        if table == "config_maps":
            parts += ["", _WITHOUT_EFFECT, *_without_effect()]
    return "\n".join(parts) + "\n", wrong


def _without_effect() -> Iterator[str]:
    """Yield the service keys that have no effect, and what there is in their place."""
    for name, instead in (*UNUSED.items(), ("log.level", BY_ENVIRONMENT)):
        yield f"| `{name}` | {instead} |"


def _preset_rows() -> Iterator[str]:
    """Yield what each preset sets, for each setting that one of them does; -: the default."""
    for name in dict.fromkeys(key for preset in PRESETS.values() for key in preset):
        values = (PRESETS[preset].get(name, "") for preset in ("muster", "design", "yunikorn"))
        shown = " | ".join(f"`{value}`" if value else "-" for value in values)
        yield f"| `{name}` | {shown} |"


def _environment() -> str:
    rows = []
    for name, item in Settings.model_fields.items():
        default = "" if item.default in (None, "") else f"`{item.default}`"
        patterns = [meta.pattern for meta in item.metadata if hasattr(meta, "pattern")]
        values = re.fullmatch(r"\^\(([a-z|]+)\)\$", patterns[0]) if patterns else None
        if values:
            others = [value for value in values[1].split("|") if value != item.default]
            default = ", ".join([default, *(f"`{value}`" for value in others)])
        rows.append(f"| `MUSTER_{name.upper()}` | {default} | {item.description or ''} |\n")
    return "".join(rows)


def _read_in(code: object, pattern: str) -> list[str]:
    return re.findall(pattern, inspect.getsource(code))  # type: ignore[arg-type]


def _on_pods() -> set[str]:
    """Return the labels and annotations that manifests are read for."""
    named = [value for module in _READERS for value in vars(module).values()]
    texts = {text for text in named if isinstance(text, str) and _NAME.fullmatch(text)}
    return {
        *texts, *(name for _, name in (*pods._APP_ID_SOURCES, *pods._QUEUE_SOURCES)),
        *namespaces._OLD_QUOTA, *(gpu_shares.FRACTION, gpu_shares.NUMBER_OF_DEVICES, GPU_DEVICES),
    }  # fmt: skip


def _differ(table: str, lines: Mapping[str, object], there_are: Iterable[str]) -> list[str]:
    """Return a sentence for each setting without a line, and each line without a setting."""
    names = set(there_are)
    where = f"scripts/words/settings.yaml: {table}"
    return [
        *(
            f"{where} has no line for {name}: say what it means"
            for name in sorted(names - {*lines})
        ),
        *(f"{where}: there is no {name} any more" for name in sorted({*lines} - names)),
    ]
