"""A filter and a score of nodes as CONTRIBUTING's table describes them: a class and its line."""

import pytest

from services.core.scheduler.nodes import filters, scores
from services.core.scheduler.nodes.filters.base import NodeFilter
from services.core.scheduler.nodes.scores.base import NodeScore
from shared.messages.interface import NodeAction, NodeInfo
from shared.model.reasons import Reason
from tests.builders import Core, config_of, section

POD = {"vcore": 1}


class InService(NodeFilter):
    """What a stranger writes: nodes that an annotation takes out of service get no pods."""

    on = "out of service"

    def admits(self, node, shape):
        return node.attributes.get("muster.io/out-of-service") != "true"


class Apart(NodeScore):
    """What a stranger writes: pods of one shape are spread, whatever else is on the nodes."""

    looks_at_ask = True

    def of_node(self, node, shape):
        return sum(one.resource_per_alloc == shape.resource for one in node.allocations.values())


def node(core: Core, name: str, vcore: int, **annotations: str) -> None:
    core.update(nodes=(NodeInfo(name, NodeAction.CREATE, {"vcore": vcore}, annotations),))


def placed(core: Core, keys: list[str], resource: dict[str, int]) -> list[str]:
    return [item.node_id for item in section(core.asks("app", keys, resource), "new_allocations")]


@pytest.mark.parametrize("order", ["fair", "binpacking"])
def test_a_filter_by_an_annotation_closes_nodes_and_is_told(monkeypatch, order):
    monkeypatch.setattr(filters, "NODE_FILTERS", (*filters.NODE_FILTERS, InService))
    core = Core(config_of("{name: a}"))
    core.partition.nodes.set_policy(order, {})
    node(core, "out", 9, **{"muster.io/out-of-service": "true"})
    node(core, "in", 2)
    core.application("app", "root.a")
    assert placed(core, ["k0", "k1", "k2"], POD) == ["in", "in"]
    (bucket,) = core.partition.queues["root.a"].buckets.values()
    failures = {failure.on: failure.nodes for failure in bucket.refusal.nodes.failures}
    assert (bucket.refusal.reason, failures) == (
        Reason.NO_NODE_FITS, {"out of service": 1, "vcore": 1}
    )  # fmt: skip
    core.check()


def test_a_score_that_looks_at_the_ask_spreads_each_shape_by_itself(monkeypatch):
    monkeypatch.setitem(scores.SCORES, "apart", Apart)
    core = Core(config_of("{name: a}"))
    core.partition.nodes.set_policy("apart", {})
    for at in range(3):
        node(core, f"n{at}", 99)
    core.application("app", "root.a")
    assert placed(core, [f"a{at}" for at in range(4)], POD) == ["n0", "n1", "n2", "n0"]
    assert placed(core, [f"b{at}" for at in range(2)], {"vcore": 2}) == ["n0", "n1"]
    core.check()
