"""Every metric by its name and labels, and the board and the alerts that read them.

Source: docs/rules/metrics.md.
"""

import asyncio
import json
import re
from functools import partial
from pathlib import Path
from weakref import WeakSet

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from shared.bus.memory import MemoryBroker, MemoryBus
from shared.messages.envelope import Address
from shared.messages.interface import (
    Allocation,
    AllocationRelease,
    TerminationType,
    UpdateConfiguration,
)
from shared.runtime import figures
from shared.runtime.clock import SystemClock
from shared.runtime.host import Host
from tests import patience
from tests.builders import config_of
from tests.unit.api.following import System
from tests.unit.api.test_routes import GANG, until
from tests.unit.api.test_routes import system as running  # noqa: F401 - the fixture

DEPLOY = Path(__file__).parents[3] / "deploy"
BUCKETS = ["0.0001", "0.001", "0.01", "0.1", "1.0", "10.0", "100.0", "1000.0", "+Inf"]
RANGES = ["[0,10%]", *(f"({at}%,{at + 10}%]" for at in range(10, 100, 10))]
_WORDS = {
    "absent", "and", "by", "histogram_quantile", "increase", "le", "max", "min", "rate", "sum",
}  # fmt: skip


def samples(text):
    """Return the values by name and labels, and the type of every family."""
    values, types = {}, {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            types[sample.name] = family.type
            values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return values, types


def worked():
    """A replica of a core that has placed, lost and refused something."""
    system = System(config_of("{name: a}", "{name: b-c}"))
    for name in ("node-1", "node-2"):
        system.node(name, memory=1000, vcore=1000, **{"nvidia.com/gpu": 10})
    system.application("app", "root.a")
    for key in ("k1", "k2"):
        system.update(allocations=(Allocation(key, "app", "node-1", {"vcore": 150}),))
    release = AllocationRelease("app", "k2", TerminationType.STOPPED_BY_RM)
    system.update(releases=(release,))
    system.asks("app", ["huge"], {"vcore": 5000})
    system.asks("nobody", ["x"], {"vcore": 1})
    system.update(nodes=(_twice("node-1"),))
    return system


def _twice(name):
    from shared.messages.interface import NodeAction, NodeInfo

    return NodeInfo(name, NodeAction.CREATE, {"vcore": 1})


async def read(system, path="/ws/v1/metrics"):
    response = await system.get(path)
    assert response.status_code == 200
    return samples(response.text)


async def test_allocations_are_counted_by_what_became_of_them():
    values, types = await read(worked())
    name = "yunikorn_scheduler_container_allocation_attempt_total"
    found = {labels[0][1]: value for (n, labels), value in values.items() if n == name}
    assert found == {"allocated": 2, "released": 1, "rejected": 1, "error": 0}
    assert types[name] == "counter"


async def test_nodes_are_counted_by_state_and_by_how_much_is_used():
    values, _ = await read(worked())

    def of(name, label):
        return {dict(ls)[label]: v for (n, ls), v in values.items() if n == name}

    assert of("yunikorn_scheduler_node", "state") == {
        "active": 2, "draining": 0, "decommissioned": 0, "failed": 1,
    }  # fmt: skip
    vcore = of("yunikorn_scheduler_vcore_node_usage_total", "range")
    assert list(vcore) == RANGES
    assert {name: count for name, count in vcore.items() if count} == {
        "[0,10%]": 1, "(10%,20%]": 1,
    }  # fmt: skip
    assert of("yunikorn_scheduler_nvidia_com_gpu_node_usage_total", "range")["[0,10%]"] == 2


@pytest.mark.parametrize(
    ("name", "levels"),
    [
        ("scheduling_latency_milliseconds", [None]),
        ("scheduling_cycle_milliseconds", [None]),
        ("node_sorting_latency_milliseconds", ["app", "queue"]),
        ("trynode_latency_milliseconds", [None]),
        ("trynode_evaluation_milliseconds", [None]),
        ("trypreemption_latency_milliseconds", [None]),
    ],
)
async def test_the_histograms_have_their_buckets_and_levels(name, levels):
    values, types = await read(worked())
    name = f"yunikorn_scheduler_{name}"
    assert types[f"{name}_bucket"] == "histogram"
    for level in levels:
        labels = [dict(ls) for n, ls in values if n == f"{name}_bucket"]
        own = [ls["le"] for ls in labels if ls.get("level") == level]
        assert own == BUCKETS
    assert any(n == f"{name}_sum" for n, _ in values)
    assert any(n == f"{name}_count" for n, _ in values)


async def test_queues_have_their_families_and_a_path_becomes_a_name():
    system = worked()
    values, types = await read(system)
    a = (("queue", "root.a"),)
    assert values["yunikorn_queue_app_total", (*a, ("state", "completed"))] == 0
    assert types["yunikorn_queue_app_total"] == "counter"
    for queue, allocated, released in (("root_a", 2, 1), ("root_b_c", 0, 0)):
        name = f"yunikorn_{queue}_queue_container"
        assert values[name, (("state", "allocated"),)] == allocated
        assert values[name, (("state", "released"),)] == released
    for state in ("max", "allocated", "pending"):
        key = ("queue", "root"), ("resource", "vcore"), ("state", state)
        assert ("yunikorn_queue_resource", key) in values
    key = ("queue", "root.a"), ("resource", "apps"), ("state", "maxRunningApps")
    assert ("yunikorn_queue_resource", key) in values


async def test_what_a_queue_has_no_more_of_is_0_until_the_queue_goes():
    system = System(config_of("{name: a}", "{name: b}"))
    system.node("n1", vcore=2_000)
    system.application("app", "root.a")
    system.asks("app", ["k1", "k2"], {"vcore": 1_500})
    for state, amount in (("allocated", 1_500), ("pending", 1_500)):
        assert await used(system, "root.a", state) == amount
    system.update(releases=(AllocationRelease("app", "", TerminationType.STOPPED_BY_RM),))
    for state in ("allocated", "pending"):
        assert await used(system, "root.a", state) == 0
    assert await used(system, "root.a", "preempting") is None  # which it never had
    assert await used(system, "root.b", "allocated") is None
    system.fire("app", "completing")
    system.send(UpdateConfiguration(config_of("{name: b}")))
    system.fire_own("cleaner")
    assert await used(system, "root.a", "allocated") is None


async def used(system, path: str, state: str) -> float | None:
    values, _ = await read(system)
    key = ("queue", path), ("resource", "vcore"), ("state", state)
    return values.get(("yunikorn_queue_resource", key))


async def test_events_are_counted():
    system = worked()
    before, _ = await read(system)
    created = before["yunikorn_event_total_created", ()]
    assert created == system.model.events.next_id > 0
    for name in ("channeled", "processed", "stored"):
        assert before[f"yunikorn_event_total_{name}", ()] == created
    for name in ("not_channeled", "not_stored", "collected"):
        assert before[f"yunikorn_event_total_{name}", ()] == 0
    await system.get("/ws/v1/events/batch?count=2")
    after, _ = await read(system)
    assert after["yunikorn_event_total_collected", ()] == 2


async def test_what_waits_is_counted_by_its_reason():
    values, _ = await read(worked())
    found = {dict(ls)["reason"]: v for (n, ls), v in values.items() if n == "muster_asks_waiting"}
    assert {reason: count for reason, count in found.items() if count}.keys() <= {
        "QUEUE_QUOTA", "NO_NODE_FITS",
    }  # fmt: skip
    assert sum(found.values()) == 1


async def test_both_addresses_answer_with_everything_before_there_is_a_model_too():
    system = System()
    for path in ("/metrics", "/ws/v1/metrics"):
        _, types = await read(system, path)
        assert "yunikorn_scheduler_node" in types
        assert "yunikorn_scheduler_scheduling_latency_milliseconds_bucket" in types
    system.model.partition = None
    _, types = await read(system, "/ws/v1/metrics")
    assert "yunikorn_scheduler_node" not in types
    assert "muster_dead_letters" in types


# --- the board and the alerts -------------------------------------------------------------------


def names_in(expression):
    bare = re.sub(r'"[^"]*"|\[[^\]]*\]|\{[^}]*\}|\b(?:by|without)\s*\([^)]*\)', " ", expression)
    return {word for word in re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare) if word not in _WORDS}


def expressions():
    board = json.loads((DEPLOY / "grafana" / "muster.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield f"board: {panel['title']}", target["expr"]
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    for rule in alerts["groups"][0]["rules"]:
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}, rule["alert"]
        yield f"alert: {rule['alert']}", rule["expr"]


async def test_every_name_on_the_board_and_in_the_alerts_is_a_metric_of_a_system_that_runs(
    running,  # noqa: F811
):
    await running.post("/v1/manifests", content=GANG)
    await until(running, "/v1/applications/gang", lambda a: a.get("running") == 3)
    watching = asyncio.create_task(_watch(running))

    async def is_told():
        return "muster_queue_configuration_refused" in (await running.get("/metrics")).text

    await patience.until(is_told, "what became of the configuration")
    values, types = samples((await running.get("/metrics")).text)
    watching.cancel()
    known = {name for name, _ in values} | set(types)
    wanted = list(expressions())
    assert len(wanted) > 30
    for where, expression in wanted:
        names = names_in(expression)
        assert names, where
        assert names <= known, where
    assert values["muster_decisions_total", (("service", "core"),)] > 0
    assert values["muster_is_synced", (("service", "core"),)] >= 1
    await patience.until(partial(_is_in_one_epoch, running), "all services in the core's epoch")
    # Those that have labels by what they count are there once they count something:
    assert ("muster_timers_armed", (("service", "timers"),)) in values


async def _is_in_one_epoch(running):  # noqa: F811
    """Return whether all four follow one core; on a loaded machine it may just have been taken over."""
    values, _ = samples((await running.get("/metrics")).text)
    epochs = {dict(ls)["service"]: v for (n, ls), v in values.items() if n == "muster_epoch"}
    return len({epochs[each] for each in ("core", "api", "timers", "shim_adapter")}) == 1


async def _watch(running):  # noqa: F811
    from services.shim_adapter.config_watch import watch

    await watch(lambda: running.cluster.host_of("shim_adapter"), None)


class Follows:
    """A machine that says which epochs it follows."""

    def __init__(self, **epochs):
        self.figures = lambda: {"epoch": epochs}


def hosts_of(**epochs_of):
    """Return a process that works for each service, by what it follows."""
    hosts = []
    for service, epochs in epochs_of.items():
        bus, make_machine = MemoryBus(MemoryBroker()), partial(Follows, **epochs)
        address = Address(service.rstrip("_"), "default")
        hosts.append(Host(address, make_machine, bus, SystemClock(), instance=service))
        hosts[-1]._place.is_active = True
    return hosts


def differing():
    """Return what the rule on epochs finds in what this process says now, by partition."""
    values, _ = samples(generate_latest().decode())
    epochs = [(dict(labels), v) for (name, labels), v in values.items() if name == "muster_epoch"]
    (rule,) = (text for where, text in expressions() if where == "alert: MusterEpochsDiffer")
    side = r'(max|min) by \((\w+)\) \(muster_epoch(?:\{service=~"([^"]+)"\})?\)'
    found = re.fullmatch(rf"{side} - {side} > 0", rule)
    assert found, rule

    def aggregated(how, label, services):
        groups = {}
        for labels, value in epochs:
            if not services or re.fullmatch(services, labels["service"]):
                groups.setdefault(labels.get(label, ""), []).append(value)
        return {name: {"max": max, "min": min}[how](group) for name, group in groups.items()}

    most, least = aggregated(*found.groups()[:3]), aggregated(*found.groups()[3:])
    both = most.keys() & least.keys()
    return {name: most[name] - least[name] for name in both if most[name] > least[name]}


def test_epochs_are_told_and_compared_by_partition(monkeypatch):
    monkeypatch.setattr(figures._FIGURES, "sources", WeakSet())  # no other test's
    both = {"default": 5, "gpu": 9}
    alike = hosts_of(core={"default": 5}, core_={"gpu": 9}, api=both, shim_adapter=both)
    assert differing() == {}
    values, _ = samples(generate_latest().decode())
    assert values["muster_epoch", (("service", "core"),)] == 5
    assert values["muster_epoch", (("partition", "gpu"), ("service", "core"))] == 9
    alike[3]._driven.machine = Follows(default=5, gpu=11)
    assert differing() == {"gpu": 2}
    alike[3]._driven.machine = Follows(default=6)
    assert differing() == {"": 1}


async def test_what_the_broker_holds_of_dead_letters_is_told(running):  # noqa: F811
    broker: MemoryBroker = running.broker
    values, _ = samples((await running.get("/metrics")).text)
    assert values["muster_dead_letters", ()] == len(broker.dead_letters) == 0
    from shared.bus.base import DeadLetter

    broker.dead_letters.append(DeadLetter("core", "k", "m", "the broker gave up on it", b""))
    values, _ = samples((await running.get("/metrics")).text)
    assert values["muster_dead_letters", ()] == 1
