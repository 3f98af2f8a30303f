"""Plugins in the actions of the policy kai: what each hook decides, and what it is told."""

from collections import Counter

from services.core.scheduler.actions.live_actions import decide
from services.core.scheduler.model.policy import Policy, Reads, reads
from services.core.scheduler.policies import kai as laws
from tests.conformance import kai


def job(name: str, queue: str, node: str = "", **more) -> dict:
    task = {"state": "Running", "node": node} if node else {"state": "Pending"}
    spec = {"name": name, "queue": queue, "priority": 50, "preemptible": True, "gpus_per_task": 1}
    return {**spec, "tasks": [task], **more}


# two full nodes of queue one, and a job of queue two that is owed one of them
ROW = {
    "nodes": {"n0": {"gpus": 1}, "n1": {"gpus": 1}},
    "queues": [
        {"name": name, "gpu_quota": 1, "gpu_over_quota_weight": 1} for name in ("one", "two")
    ],
    "jobs": [job("run0", "one", "n0"), job("run1", "one", "n1"), job("wait", "two")],
    "expected": {},
}


def evicted(**hooks) -> list[str]:
    policy = Policy(**{kind: [hook] for kind, hook in hooks.items()})
    _, _, decisions = kai.run(kai.World(ROW), ["reclaim"], policy)
    return [decision.key for decision in decisions if decision.evicts]


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
        policy = Policy(score=[lambda node, _, first=first: node.node_id != first])
        _, shown, _ = kai.run(kai.World(row), ["allocate"], policy)
        assert shown["wait-0"][1] == first


def test_job_order_comes_before_priority():
    row = {
        **ROW,
        "nodes": {"n0": {"gpus": 1}},
        "jobs": [job("first", "one", priority=50), job("second", "one", priority=49)],
    }
    backwards = Policy(order=[lambda application: -application.sequence])
    _, _, found = kai.run(kai.World(row), ["allocate"], backwards)
    assert [decision.key for decision in found] == ["second-0"]


def test_every_trial_is_told_and_its_end():
    balance: Counter = Counter()
    row = {**ROW, "jobs": [job("wait", "two")]}
    watch = Policy(
        on_allocate=[lambda _, held: balance.update({held.allocation_key: 1})],
        on_deallocate=[lambda _, held: balance.update({held.allocation_key: -1})],
    )
    trial = kai.World(row).trial(watch)
    decide(trial, ["allocate"], laws)
    assert balance == {"wait-0": 1}
    trial.statement.discard()
    assert not any(balance.values())
