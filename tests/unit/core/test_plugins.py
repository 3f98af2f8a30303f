"""Plugins of the actions framework: what each callback decides, and what it is told."""

from collections import Counter

import numpy as np

from services.core.scheduler.kai import engine
from services.core.scheduler.kai.session import Job, Queue, Session, Status, Task

NAMES = ("vcore", "memory", "nvidia.com/gpu")


def cluster() -> Session:
    """Return two full nodes of queue one, and a job of queue two that is owed one of them."""
    session = Session(NAMES, ["n0", "n1"], np.array([[10, 10, 1]] * 2, np.int64))
    one, two = (
        session.add_queue(Queue(name, at, quota=[-1, -1, 1], weight=[1, 1, 1]))
        for at, name in enumerate(("one", "two"))
    )
    for at in range(2):
        job = Job(f"run{at}", one, 50, at)
        job.tasks.append(Task(f"run{at}-0", job, (1, 1, 1), 0, 0, Status.RUNNING, at))
        session.add_job(job)
    wait = Job("wait", two, 50, 9)
    wait.tasks.append(Task("wait-0", wait, (1, 1, 1), 0))
    session.add_job(wait)
    return session


def evicted(*plugins) -> list[str]:
    decisions = engine.run(cluster(), ["reclaim"], (*engine.DEFAULT_PLUGINS, *plugins))
    return [decision.task for decision in decisions if decision.evicts]


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
        plugins.feasible.append(lambda session, task: np.array([True, False]))

    def closed(plugins):
        plugins.capacity.append(lambda job, amount: "closed for today")

    assert evicted(only_n0) == ["run0-0"]
    assert evicted(closed) == []


def test_job_order_comes_before_priority():
    session = Session(NAMES, ["n0"], np.array([[10, 10, 1]], np.int64))
    queue = session.add_queue(Queue("q", 0, quota=[-1, -1, -1]))
    for at, name in enumerate(("first", "second")):
        job = Job(name, queue, 50 - at, at)
        job.tasks.append(Task(f"{name}-0", job, (1, 1, 1), 0))
        session.add_job(job)

    def backwards(plugins):
        plugins.job_order.append(lambda job: -job.number)

    found = engine.run(session, ["allocate"], (*engine.DEFAULT_PLUGINS, backwards))
    assert [decision.task for decision in found] == ["second-0"]


def test_every_move_is_told_and_a_simulation_tells_both_ways():
    balance: Counter = Counter()

    def watch(plugins):
        plugins.moved.append(lambda task, change: balance.update({task.name: change}))

    assert evicted(watch) == ["run1-0"]
    assert {name: count for name, count in balance.items() if count} == {"run1-0": -1, "wait-0": 1}
