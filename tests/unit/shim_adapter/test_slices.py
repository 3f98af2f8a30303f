"""Many pods handed in at once are made in slices: all of them or, after a crash, none; then once."""

import gc
import json
import tracemalloc

from services.shim_adapter.backends.simulated.store import ClusterStore
from services.shim_adapter.machine import SLICE_PODS
from services.shim_adapter.service import STATE_FILE, ShimOptions, ShimService
from shared.messages.commands import ManifestDocument, SubmitManifests, SubmitResult
from shared.messages.envelope import SHIM_ADAPTER, Envelope

DOCUMENTS = 3


def job(at):
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"job-{at}"},
        "spec": {
            "completions": SLICE_PODS,
            "parallelism": SLICE_PODS,
            "template": {
                "metadata": {"labels": {"applicationId": "app", "queue": "root.default"}},
                "spec": {
                    "schedulerName": "yunikorn",
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                },
            },
        },
    }
    return ManifestDocument("file", at, json.dumps(body))


def submission():
    wanted = SubmitManifests(tuple(map(job, range(DOCUMENTS))), idempotency_key="key")
    return Envelope("m", "SubmitManifests", wanted, SHIM_ADAPTER, "api", reply_to="api.x#1")


def pods_kept(folder):
    store = ClusterStore(folder / STATE_FILE)
    try:
        return len(store.load().pods)
    finally:
        store.close()


def results(said):
    return [item.message for item in said if isinstance(item.message, SubmitResult)]


def test_a_crash_between_slices_leaves_nothing_and_the_message_makes_all_once(tmp_path):
    service = ShimService(ShimOptions(state_dir=tmp_path))
    machine = service.make_machine()
    said = []
    slices = machine.slices(submission(), 1, said)
    for _ in range(2 * DOCUMENTS - 1):  # all are translated, and all but one are made
        next(slices)
    assert len(machine.world.pods) == (DOCUMENTS - 1) * SLICE_PODS
    assert results(said) == []
    assert pods_kept(tmp_path) == 0
    for _ in range(2):
        machine = service.make_machine()
        said = machine.handle(submission(), 2)
        machine.flush(2)
        (result,) = results(said)
        assert [item.pods for item in result.accepted] == [SLICE_PODS] * DOCUMENTS
        assert pods_kept(tmp_path) == DOCUMENTS * SLICE_PODS
    service.close()


def test_few_pods_are_one_piece(tmp_path):
    machine = ShimService(ShimOptions()).make_machine()
    wanted = SubmitManifests((ManifestDocument("f", 0, "{}"),))
    envelope = Envelope("m", "SubmitManifests", wanted, SHIM_ADAPTER, "api", reply_to="api.x#1")
    said = []
    assert list(machine.slices(envelope, 1, said)) == []
    assert len(results(said)) == 1


def test_one_that_starts_over_reads_a_row_at_a_time_and_holds_no_world_of_before(tmp_path):
    service = ShimService(ShimOptions(state_dir=tmp_path))
    before = service.make_machine()
    before.handle(submission(), 1)
    before.flush(1)
    gc.collect()
    tracemalloc.start()
    try:
        machine = service.make_machine()
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(machine.world.pods) == DOCUMENTS * SLICE_PODS
    assert most < held * 1.25
    assert not before.world.pods
    service.close()
