"""The demo's plan: it goes on, the same for the same seed, and what it submits can run."""

from itertools import islice
from pathlib import Path

import pytest

from services.cli.demo.plan import ROUND_SECONDS, plan
from services.cli.simulated_nodes import nodes_of
from services.shim_adapter.translation.manifests import translate
from shared.messages.commands import ChangeNodes, SubmitManifests
from shared.model.quantity import pod_resources
from shared.model.resources import fits_limit, multiply
from shared.queueconfig import load_configuration
from tests.unit.cli.test_up import Process

DEMO = Path(__file__).parents[3] / "services" / "cli" / "demo"
ROUNDS = 30  # steps: some three rounds


def steps(count=20, seed=1):
    return [*islice(plan(nodes_of(str(count), "", 0, ""), seed), ROUNDS)]


def test_it_is_the_same_for_the_same_seed_and_takes_a_minute_a_round():
    assert steps() == steps()
    assert steps() != steps(seed=2)
    assert len(steps()) == ROUNDS
    assert 2 * ROUND_SECONDS < sum(step.after for step in steps()) < 4 * ROUND_SECONDS
    assert all(step.after > 0 for step in steps())


def test_all_that_is_submitted_has_an_owner_and_can_run_in_its_queue():
    (partition,) = load_configuration((DEMO / "queues.yaml").read_text()).partitions
    most = {f"root.{q.name}": pod_resources(q.resources.max) for q in partition.queues[0].queues}
    kinds = set()
    for step in steps():
        if not isinstance(step.message, SubmitManifests):
            continue
        found = translate(step.message.documents, 0)
        assert found.refused == []
        (job,) = found.taken
        first = job.pods[0]
        kinds.add((first.queue_name, bool(first.task_groups)))
        assert first.user in first.application_id
        assert first.stated_run_ns > 0
        for group in first.task_groups:
            whole = multiply(group.min_resource, group.min_member)
            assert fits_limit(
                most[first.queue_name], {k: v for k, v in whole.items() if k != "pods"}
            )
    assert {queue for queue, _ in kinds} == set(most)
    assert {is_gang for _, is_gang in kinds} == {True, False}


def test_a_round_leaves_the_cluster_room_for_the_next():
    """Else who waits grows for as long as the demo runs. A node has 8 cores, pods are not divided."""
    used = 0
    for step in steps():
        if isinstance(step.message, SubmitManifests):
            (job,) = translate(step.message.documents, 0).taken
            for pod in job.pods:
                cores = pod.resource["vcore"] // 1000
                used += 8_000 // (8 // cores) * pod.stated_run_ns // 10**9
    seconds = sum(step.after for step in steps())
    assert 0.6 < used / (20 * 8_000 * seconds) < 0.9


def test_a_node_that_fails_returns_as_it_was():
    changes = [step.message.nodes[0] for step in steps() if isinstance(step.message, ChangeNodes)]
    assert len(changes) >= 4
    before = {node.name: node for node in nodes_of("20", "", 0, "")}
    for gone, again in zip(changes[::2], changes[1::2], strict=False):
        assert (gone.action, again.action, gone.name) == ("remove", "add", again.name)
        assert again.capacity == before[again.name].capacity


def test_of_a_few_nodes_none_fails():
    assert not [step for step in steps(count=3) if isinstance(step.message, ChangeNodes)]


@pytest.mark.limit(90, "a service of its own starts, and the plan's first jobs come after seconds")
def test_the_demo_goes_on_and_says_what_to_look_at():
    run = Process("--demo")
    said = run.until("now: ")
    assert "muster queues" in said
    name = said.removeprefix("now: ").split()[0]
    run.until(f"{name} ")
    status, _ = run.interrupt()
    assert status == 0
