"""The textbook's EASY on nodes of GPUs, with which docs/schedule.md compares: by hand, and whole."""

from shared.model.gpus import GPU
from tests.property.easy_nodes import A_NODE, EasyOnNodes
from tests.property.gpu_month import gpu_month
from tests.property.wide import S
from tools.replay.jobs import Job, Trace, in_order

NODES = 2


def starts(*jobs: tuple[int, int, int]) -> list[int]:
    """Return when jobs start, each (submitted, run, GPUs) in seconds; each size is a user's."""
    made = [
        Job(f"job-{at}", submitted * S, run * S, "all", f"user-{size}", ((1, {GPU: size}),))
        for at, (submitted, run, size) in enumerate(jobs)
    ]
    trace = Trace("by hand", in_order(made), GPU, NODES, {GPU: A_NODE})
    return [task.started for task in EasyOnNodes(trace).run().tasks]


def test_the_first_is_not_put_off_and_who_is_predicted_to_end_before_passes():
    """Of 4 GPUs the last ran 10 s: another passes the gang; of 8 the last ran 100 s: it does not."""
    known = ((0, 10, 4), (20, 100, 8))
    found = starts(*known, (200, 100, 8), (210, 50, 16), (220, 100, 8), (221, 10, 4))
    assert found == [0, 20, 200, 300, 350, 221]


def test_nothing_is_used_twice_and_every_job_starts():
    easy = EasyOnNodes(gpu_month(1).first(400)).run()
    assert easy.free == [A_NODE] * 36
    assert all(task.started >= task.submitted for task in easy.tasks)
    assert easy.longest_s > 0
