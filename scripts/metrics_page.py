"""The page of metrics: every family that /metrics can have, with its type, labels and meaning.

What a machine says of itself (``shared.runtime.figures``) has a name and no words: they are here.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import REGISTRY
from prometheus_client.registry import CollectorRegistry

from services.api.projection.model import Model, NodeView
from services.api.yunikorn.metrics import _Metrics
from shared.messages.state import NodeState, QueueState

ROOT = Path(__file__).parent.parent
_DEFINES = re.compile(r"\b(?:Counter|Gauge|Histogram)\(\s*\"")
_INTRODUCTION = """\
# Metrics

Generated from the code by `scripts/make_docs.py`. Every service has `/metrics` on its health
port, the API on its own port and also as `/ws/v1/metrics`. Names that begin with `yunikorn` are
YuniKorn's, with its labels. Counters start at zero with their process. Histograms have `_bucket`,
`_sum` and `_count`; those of YuniKorn are in seconds, whatever their names say.

`deploy/grafana/muster.json` is a dashboard, `deploy/prometheus/alerts.yaml` has alert rules;
[operations](operations.md#alerts) says what to do at each. In a name, QUEUE is a queue's path and
RESOURCE a resource type, with `_` for every character that is no letter or digit.
"""
FIGURES = {
    "epoch": "Epoch of a partition, as known to the service: the same everywhere, except while its "
    "core recovers",
    "is_synced": "1 while its state is complete (core: while it schedules), else 0",
    "decisions_total": "Decided allocations, releases and preemptions",
    "pairs_held": "Pairs of applications held back because they evicted each other in turn",
    "lost_gpu_seconds_total": "GPU-seconds lost by evictions: work since each pod's last "
    "checkpoint, at most an hour, and its stated restart time",
    "lost_vcore_seconds_total": "The same in vcore-seconds, for pods without a GPU",
    "held_idle_ppm": "Share of the cluster's time that nodes reserved for a gang were idle, in ppm",
    "forecasts_compared_total": "Forecasts (`muster when`) whose application has started",
    "forecast_missed_total": "Of those, starts later than the forecast for nine of ten cases",
    "timers_ordered": "Timers that the core has ordered",
    "timers_armed": "Timers not yet due",
    "timers_left_out": "Timers beyond the limit; they fire late",
    "timers_fired_total": "Timers that have fired",
    "binds_refused_total": "Decisions that could not be bound; their pods wait again",
    "requests_waiting": "Requests that wait for another service",
    "event_streams": "Open event streams",
}
_TITLES = {
    "muster_": "Muster's own, of each service",
    "read model": "Of the read model, at the API",
    "yunikorn_": "YuniKorn's, of the core",
}


def metrics_page() -> tuple[str, list[str]]:
    """Return the page as Markdown, and what does not hold."""
    for path in sorted([*(ROOT / "services").rglob("*.py"), *(ROOT / "shared").rglob("*.py")]):
        if _DEFINES.search(path.read_text()):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    importlib.import_module("shared.runtime.latency")
    of_processes = [row for row in _rows(REGISTRY) if row[0].startswith(("muster_", "yunikorn_"))]
    sections = {
        _TITLES["muster_"]: sorted(
            {
                **{row[0]: row for row in of_processes if row[0].startswith("muster_")},
                **{row[0]: row for row in map(_figure, FIGURES)},
            }.values()
        ),
        _TITLES["read model"]: list(_of_the_read_model()),
        _TITLES["yunikorn_"]: [row for row in of_processes if row[0].startswith("yunikorn_")],
    }
    parts = [_INTRODUCTION]
    for title, rows in sections.items():
        parts += [f"## {title}", "| name | type | labels | what |\n|---|---|---|---|"]
        parts += [f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in rows]
        parts.append("")
    there_are = _figures()
    wrong = [
        f"metrics_page.py: FIGURES has no line for {name}"
        for name in sorted(there_are - {*FIGURES})
    ]
    wrong += [
        f"metrics_page.py: there is no figure {name}" for name in FIGURES if name not in there_are
    ]
    return "\n".join(parts), wrong


def _figure(name: str) -> tuple[str, str, str, str]:
    kind = "counter" if name.endswith("_total") else "gauge"
    labels = "`service`, `partition`" if name == "epoch" else "`service`"
    return f"muster_{name}", kind, labels, FIGURES[name]


def _figures() -> set[str]:
    """Return the names that machines give their figures: the keys in every ``figures``."""
    found: set[str] = set()
    for path in (ROOT / "services").rglob("*.py"):
        text = path.read_text()
        if "def figures(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.name == "figures":
                maps = (part for part in ast.walk(node) if isinstance(part, ast.Dict))
                keys = (key for each in maps for key in each.keys)
                found |= {key.value for key in keys if isinstance(key, ast.Constant)}
    return found


def _of_the_read_model() -> Iterator[tuple[str, str, str, str]]:
    """Yield the families of a model with one queue and one node, whose names stand in theirs."""
    model = Model()
    model.queues["root.QUEUE"] = QueueState(
        path="root.QUEUE", parent="root", is_leaf=True, is_managed=True, status="Active",
        max_resource=None, guaranteed_resource=None, allocated={}, pending={}, properties={},
        max_running_apps=0, running_apps=0, allocating_accepted_apps=(), sort_policy="fifo",
        priority_sorting=True, current_priority=0,
    )  # fmt: skip
    model.nodes["n"] = NodeView(NodeState("n", {}, {"RESOURCE": 1}, {}, {}, {}, schedulable=True))
    registry = CollectorRegistry()
    registry.register(_Metrics(model, model.events))
    yield from _rows(registry)


def _rows(registry: CollectorRegistry) -> Iterator[tuple[str, str, str, str]]:
    families = {}
    for collector in registry._collector_to_names:
        for family in collector.collect():
            labels = dict.fromkeys(getattr(collector, "_labelnames", ()))
            labels |= dict.fromkeys(getattr(family, "_labelnames", ()))
            for sample in family.samples:
                labels |= {label: None for label in sample.labels if label != "le"}
            end = "_total" if family.type == "counter" else ""
            name = family.name.replace("root_QUEUE", "QUEUE") + end
            quoted = ", ".join(f"`{label}`" for label in labels)
            families[name] = (name, family.type, quoted, family.documentation)
    yield from (families[name] for name in sorted(families))
