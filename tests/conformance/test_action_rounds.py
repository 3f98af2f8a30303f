"""Random small clusters through rounds of all actions: what must hold whoever makes way for whom.

A round may not fill a node beyond what it has, bring a queue over its limit or its quota of what may
not be preempted, end what may not be preempted, or leave of a gang less than its minimum, unless
some of it is being moved.
"""

import random
from collections import Counter

from tests.conformance.kai_files import gang_of
from tests.conformance.kai_machine import Machine, Shown, task_name
from tests.table import each_row

ROUNDS = 4


def row_of(seed: int) -> dict:
    """Return a row of the tables, without what is expected."""
    draw = random.Random(seed)
    nodes = {f"node{at}": {"gpus": draw.choice([2, 4, 8])} for at in range(draw.randint(1, 4))}
    departments = [
        {
            "name": f"d{at}",
            "gpu_quota": draw.choice(["unlimited", 0, 2, 4, 8]),
            "gpu_over_quota_weight": draw.randint(0, 3),
            "gpu_limit": draw.choice([None, None, None, None, 4, 8]),
        }
        for at in range(draw.randint(1, 2))
    ]
    queues = [
        {
            "name": f"q{at}",
            "parent": draw.choice(departments)["name"],
            "priority": draw.choice([100, 100, 90, 110]),
            "gpu_quota": draw.randint(0, 4),
            "gpu_over_quota_weight": draw.randint(0, 3),
            "gpu_limit": draw.choice([None, None, None, None, 2, 4]),
            "preempt_min_runtime_s": draw.choice([None, None, None, 60, 61]),
            "reclaim_min_runtime_s": draw.choice([None, None, None, 60, 61]),
        }
        for at in range(draw.randint(1, 4))
    ]
    free = {name: node["gpus"] for name, node in nodes.items()}
    jobs = [job_of(draw, f"j{at}", queues, free) for at in range(draw.randint(2, 8))]
    row = {"nodes": nodes, "departments": departments, "queues": queues, "jobs": jobs}
    return {**row, "default_staleness_grace_s": 60, "expected": {}}


def job_of(draw: random.Random, name: str, queues: list[dict], free: dict[str, int]) -> dict:
    """Return a job that waits or runs; below its minimum none does."""
    count, gpus = draw.randint(1, 4), draw.choice([1, 1, 2])
    minimum, may_run = draw.randint(1, count), draw.random() < 0.6
    tasks: list[dict] = []
    for at in range(count):
        room = [node for node, left in free.items() if left >= gpus]
        if may_run and room and (at < minimum or draw.random() < 0.5):
            tasks.append({"state": "Running", "node": draw.choice(room)})
            free[tasks[-1]["node"]] -= gpus
        else:
            tasks.append({"state": "Pending"})
    more: dict = {"min_available": minimum}
    if count > 1 and draw.random() < 0.3:
        more["subgroups"] = in_parts(draw, name, tasks)
    if not is_whole({"name": name, "preemptible": True, "tasks": tasks, **more}, runs_in(tasks)):
        for task in tasks:
            free[task.get("node", "")] = free.get(task.get("node", ""), 0) + gpus
        free.pop("", None)
        tasks = [
            {"state": "Pending", **({"subgroup": task["subgroup"]} if "subgroup" in task else {})}
            for task in tasks
        ]
    if draw.random() < 0.2:
        tasks[-1]["task_priority"] = 5
    priority = draw.choice([50, 50, 75, 100, 125])
    return {
        "name": name,
        "queue": draw.choice(queues)["name"],
        "priority": priority,
        "preemptible": priority < 100,
        "gpus_per_task": gpus,
        **more,
        "tasks": tasks,
    }


def in_parts(draw: random.Random, name: str, tasks: list[dict]) -> dict:
    """Give tasks to two subgroups; return the tree."""
    cut = draw.randint(1, len(tasks) - 1)
    sizes = {"a": cut, "b": len(tasks) - cut}
    for at, task in enumerate(tasks):
        task["subgroup"] = "a" if at < cut else "b"
    podsets = [{"name": n, "min_available": draw.randint(0, size)} for n, size in sizes.items()]
    least = draw.choice([{}, {}, {"min_sub_group": 1}])
    return {"name": name, "podsets": podsets, "groups": [], **least}


def runs_in(tasks: list[dict]) -> list[int]:
    return [at for at, task in enumerate(tasks) if task["state"] == "Running"]


def is_whole(job: dict, running: list[int]) -> bool:
    """Return whether what runs of a job is what its gang needs."""
    gang = gang_of({}, job)
    part = [gang.part_of(task.get("subgroup", "")) for task in job["tasks"]]
    return gang.tree.is_satisfied(Counter(part[at] for at in running))


def usage(row: dict, state: dict[str, Shown]) -> dict[str, Counter]:
    """Return how many accelerators run on nodes, in queues, and there without leave to preempt."""
    above = {queue["name"]: queue["parent"] for queue in row["queues"]}
    found = {"nodes": Counter(), "queues": Counter(), "fixed": Counter()}
    for job in row["jobs"]:
        for at in range(len(job["tasks"])):
            status, node = state[task_name(job, at)]
            gpus = job["gpus_per_task"] if status == "Running" else 0
            found["nodes"][node] += gpus
            for queue in (job["queue"], above[job["queue"]]):
                found["queues"][queue] += gpus
                found["fixed"][queue] += 0 if job["preemptible"] else gpus
    return found


@each_row("seed", [*range(60), 459])  # 459 once left a gang below its minimum
def test_a_round_keeps_what_was_promised(seed):
    row = row_of(seed)
    machine = Machine(row)
    for _ in range(ROUNDS):
        before = machine.shown(settled=True)
        machine.step()
        shown = machine.shown()
        machine.settle()
        after = machine.shown(settled=True)
        assert machine.broken() == []
        check_sums(row, before, after)
        for job in row["jobs"]:
            check_job(job, before, shown, after)


def check_sums(row: dict, before: dict, after: dict) -> None:
    was, now = usage(row, before), usage(row, after)
    for name, node in row["nodes"].items():
        assert now["nodes"][name] <= node["gpus"]
    for queue in [*row["departments"], *row["queues"]]:
        for kind, key in (("queues", "gpu_limit"), ("fixed", "gpu_quota")):
            bound, name = queue[key], queue["name"]
            is_bound = bound not in (None, "unlimited")
            assert not is_bound or now[kind][name] <= max(bound, was[kind][name]), (key, queue)


def check_job(job: dict, before: dict, shown: dict, after: dict) -> None:
    names = [task_name(job, at) for at in range(len(job["tasks"]))]
    ran = [name for name in names if before[name][0] == "Running"]
    runs = [name for name in names if after[name][0] == "Running"]
    if not job["preemptible"]:
        assert set(ran) <= set(runs), f"{job['name']} may not be preempted"
    is_moving = any(shown[name][0] == "Pipelined" for name in names)
    was_half = bool(ran) and not is_whole(job, [names.index(name) for name in ran])  # or moved
    if not (is_moving or was_half):
        is_left = is_whole(job, [names.index(name) for name in runs])
        assert not runs or is_left, f"of {job['name']} {runs} are left"
