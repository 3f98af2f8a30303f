"""One state folder has one shim adapter, and its epoch never goes back."""

import subprocess
import sys

import pytest

from services.shim_adapter.backends.simulated import SimulatedCluster
from services.shim_adapter.backends.simulated.store import (
    ClusterStore,
    FolderInUseError,
    StaleWorldError,
)
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import PodPhase, PodRecord
from services.shim_adapter.service import ShimOptions, ShimService
from shared.messages.commands import PodSpec
from shared.model.units import seconds


def test_a_second_shim_adapter_is_refused_with_a_sentence_until_the_first_has_gone(tmp_path):
    first = ShimService(ShimOptions(state_dir=tmp_path))
    first.make_machine()
    with pytest.raises(FolderInUseError, match="in use by another shim adapter: stop it first"):
        ShimService(ShimOptions(state_dir=tmp_path))
    first.make_machine()  # one that starts over stays
    first.close()
    ShimService(ShimOptions(state_dir=tmp_path)).close()


def test_a_pod_that_was_bound_and_not_started_runs_for_its_time_after_a_restart():
    world = World()
    spec = PodSpec("p", "app", {"vcore": 1}, run_ns=seconds(60))
    pod = PodRecord("uid", spec, seconds(1_000), 1, node="node", bound_ns=seconds(1_001))
    world.add_pod(pod)
    cluster = SimulatedCluster(world, start_delay_ns=seconds(2))
    assert cluster.advance(seconds(1_005)) == []
    assert (pod.phase, pod.started_ns) == (PodPhase.RUNNING, seconds(1_003))
    assert cluster.advance(seconds(1_062)) == []
    (ended,) = cluster.advance(seconds(1_063))
    assert ended.pod is pod


def test_a_second_process_ends_with_the_sentence_and_the_status_of_a_bad_environment(tmp_path):
    first = ShimService(ShimOptions(state_dir=tmp_path))
    environment = {
        "MUSTER_STATE_DIR": str(tmp_path),
        "MUSTER_BUS_URL": "amqp://127.0.0.1/",
        "PYTHONPATH": ":".join(sys.path),
    }
    second = subprocess.run(
        [sys.executable, "-m", "services.shim_adapter"],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert second.returncode == 78
    assert f"{tmp_path} is in use by another shim adapter" in second.stderr
    assert "Traceback" not in second.stderr
    first.close()


def test_a_world_of_an_earlier_epoch_is_not_written_over_a_later_one(tmp_path):
    path = tmp_path / "cluster.sqlite"
    late, early = ClusterStore(path), ClusterStore(path)
    stale = early.load()
    world = late.load()
    for _ in range(6):
        world.next_epoch()
    late.save(world)
    stale.next_epoch()
    with pytest.raises(StaleWorldError, match="of epoch 6, we are of 1"):
        early.save(stale)
    assert late.load().epoch == 6
    world.next_epoch()
    late.save(world)
    assert early.load().epoch == 7


def test_an_unused_file_is_of_no_epoch(tmp_path):
    store = ClusterStore(tmp_path / "cluster.sqlite")
    world = World()
    world.next_epoch()
    store.save(world)
    assert store.load().epoch == 1


@pytest.mark.parametrize(("max_ended", "left"), [(0, 4), (2, 2)])
def test_as_many_pods_are_kept_after_their_end_as_is_set(max_ended, left):
    world = World()
    for at in range(4):
        spec = PodSpec(f"p{at}", "app", {"vcore": 1}, run_ns=seconds(60))
        pod = PodRecord(f"uid{at}", spec, seconds(1), 1, node="node", bound_ns=seconds(2))
        world.add_pod(pod)
    cluster = SimulatedCluster(world, max_ended=max_ended)
    cluster.advance(seconds(3))
    cluster.advance(seconds(100))
    assert [pod.uid for pod in world.all_pods()] == [f"uid{at}" for at in range(4 - left, 4)]
