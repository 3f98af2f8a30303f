"""Plugins of the actions framework: what each callback decides, and what it is told."""

from collections import Counter

import numpy as np

from services.core.scheduler.actions.live_actions import DEFAULT_PLUGINS, decide
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


def evicted(*plugins) -> list[str]:
    _, _, decisions = kai.run(kai.World(ROW), ["reclaim"], (*DEFAULT_PLUGINS, *plugins))
    return [decision.key for decision in decisions if decision.evicts]


def test_without_any_the_youngest_goes():
    assert evicted() == ["run1-0"]


def test_a_victim_filter_spares_a_job():
    def spares(plugins):
        plugins.victim.append(lambda action, victim, job: victim.name != "run1")

    assert evicted(spares) == ["run0-0"]


def test_a_scenario_validator_has_the_last_word():
    seen = []

    def refuses(plugins):
        def agree(action, job, units):
            seen.append((action, job.name, [task.name for _, tasks in units for task in tasks]))
            return False

        plugins.scenario.append(agree)

    assert evicted(refuses) == []
    assert ("reclaim", "wait", ["run1-0"]) in seen


def test_feasibility_and_capacity_keep_a_job_out():
    def only_n0(plugins):
        plugins.feasible.append(lambda trial, task: np.array([True, False]))

    def closed(plugins):
        plugins.capacity.append(lambda job, amount: "closed for today")

    assert evicted(only_n0) == ["run0-0"]
    assert evicted(closed) == []


def test_job_order_comes_before_priority():
    row = {
        **ROW,
        "nodes": {"n0": {"gpus": 1}},
        "jobs": [job("first", "one", priority=50), job("second", "one", priority=49)],
    }

    def backwards(plugins):
        plugins.job_order.append(lambda job: -job.number)

    _, _, found = kai.run(kai.World(row), ["allocate"], (*DEFAULT_PLUGINS, backwards))
    assert [decision.key for decision in found] == ["second-0"]


def test_every_move_is_told_and_a_simulation_tells_both_ways():
    balance: Counter = Counter()
    then: Counter = Counter()

    def watch(plugins):
        plugins.moved.append(lambda task, change: balance.update({task.name: change}))

    trial = kai.World(ROW).trial((*DEFAULT_PLUGINS, watch))
    decide(trial, ["reclaim"], laws)
    then.update({name: count for name, count in balance.items() if count})
    assert then == {"run1-0": -1, "wait-0": 1}
    trial.statement.discard()
    assert not any(balance.values())
