"""Many pods: what is kept of each is small, and what waits to be taken in is bounded."""

import gc
import tracemalloc

import pytest

from services.shim_adapter.backends.kubernetes import cluster as cluster_module
from tests.integration.kubernetes.test_backend import QUEUES
from tests.kubernetes.double import Double
from tests.kubernetes.harness import Access, ApiClient, Kubectl, Muster
from tests.patience import until

PODS, NODES = 4_000, 200
BYTES_A_POD = (
    10 * 1024
)  # in all four services together, of which the pod itself is some 4 KiB of JSON


@pytest.mark.long
async def test_a_large_cluster_is_listed_page_by_page_in_bounded_memory(monkeypatch):
    longest = 0
    report = cluster_module.KubernetesCluster.report

    def watched(self, observed):
        nonlocal longest
        report(self, observed)
        longest = max(longest, len(self._seen))

    monkeypatch.setattr(cluster_module.KubernetesCluster, "report", watched)
    monkeypatch.setattr(cluster_module, "MAX_SEEN", 600)
    double = Double()
    await double.start()
    double.load(NODES, PODS)
    client = ApiClient(Access(double.url), "tests")
    await Kubectl(client).config(QUEUES)
    gc.collect()
    tracemalloc.start()
    try:
        async with Muster(Access(double.url)) as muster:
            await until(muster.is_ready, "the first sync")
            await until(
                lambda: sum(len(n.foreign) for n in muster.model.nodes.values()) == PODS, "all"
            )
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
            assert len(muster.world.nodes) == NODES
    finally:
        tracemalloc.stop()
        await client.close()
        await double.stop()
    assert double.requests["GET pods"] >= PODS // 500  # pages, not one answer
    assert longest <= 600
    assert kept < PODS * BYTES_A_POD
