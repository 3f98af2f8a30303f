"""Plugins in the actions of the policy kai: what each hook decides, and what it is told."""

from collections import Counter

from services.core.scheduler.model.policy import Policy, Reads, reads
from tests.conformance.kai_machine import Machine


def job(name: str, queue: str, node: str = "", **more) -> dict:
    task = {"state": "Running", "node": node} if node else {"state": "Pending"}
    spec = {"name": name, "queue": queue, "priority": 50, "preemptible": True, "gpus_per_task": 1}
    return {**spec, "tasks": [task], **more}


# two full nodes of queue one, and a job of queue two that is owed one of them
ROW = {
    "actions": ["reclaim"],
    "nodes": {"n0": {"gpus": 1}, "n1": {"gpus": 1}},
    "queues": [
        {"name": name, "gpu_quota": 1, "gpu_over_quota_weight": 1} for name in ("one", "two")
    ],
    "jobs": [job("run0", "one", "n0"), job("run1", "one", "n1"), job("wait", "two")],
}


def machine(row: dict, **hooks) -> Machine:
    def register(policy: Policy) -> None:
        for kind, hook in hooks.items():
            getattr(policy, kind).append(hook)

    return Machine(row, {"test": register} if hooks else None)


def evicted(**hooks) -> list[str]:
    core = machine(ROW, **hooks)
    core.act()
    return [task for task, (status, _) in core.shown().items() if status == "Releasing"]


def test_without_any_the_youngest_goes():
    assert evicted() == ["run1-0"]


def test_a_victim_filter_spares_a_job():
    assert evicted(victim=lambda action, victim, job: victim.application.id != "run1") == ["run0-0"]


def test_a_scenario_validator_has_the_last_word():
    seen = []

    def agree(action, victims, job):
        seen.append((action, job.id, [victim.allocation.allocation_key for victim in victims]))
        return False

    assert evicted(scenario=agree) == []
    assert ("reclaim", "wait", ["run1-0"]) in seen


def test_feasibility_and_capacity_keep_a_job_out():
    assert evicted(feasible=lambda node, shape: node.node_id == "n0") == ["run0-0"]
    assert evicted(feasible=reads(Reads.NODES)(lambda node, _: node.node_id == "n0")) == ["run0-0"]
    assert evicted(capacity=lambda application, amount: "closed for today") == []


def test_a_score_decides_among_nodes_that_are_free():
    row = {**ROW, "jobs": [job("wait", "two")]}
    for first in ("n0", "n1"):
        core = machine(row, score=lambda node, _, first=first: node.node_id != first)
        assert core.shown()["wait-0"] == ("Binding", first)


def test_job_order_comes_before_priority():
    row = {
        **ROW,
        "nodes": {"n0": {"gpus": 1}},
        "jobs": [job("first", "one", priority=50), job("second", "one", priority=49)],
    }
    shown = machine(row, order=lambda application: -application.sequence).shown()
    assert shown == {"first-0": ("Pending", ""), "second-0": ("Binding", "n0")}


def test_every_trial_is_told_and_its_end():
    balance: Counter = Counter()
    moves: list[str] = []

    def came(_, held):
        moves.append(held.allocation_key)
        balance.update({held.allocation_key: 1})

    core = machine(
        ROW,
        on_allocate=came,
        on_deallocate=lambda _, held: balance.update({held.allocation_key: -1}),
    )
    core.act()
    assert {key for key, count in balance.items() if count} == {"run0-0", "run1-0"}
    assert set(balance.values()) <= {0, 1}
