"""What nodes fail on, in the words of Kubernetes' scheduler."""

from shared.model.causes import causes_of, unavailable_text
from shared.model.reasons import (
    IN_USE,
    OTHER_PODS,
    PREDICATES,
    TAINTS,
    TOO_SMALL,
    VOLUMES,
    NodeEvidence,
    NodeFailures,
    PodCause,
)
from tests.table import each_row


@each_row(
    ("on", "detail", "text"),
    [
        ("vcore", "", "Insufficient cpu"),
        ("pods", "", "Too many pods"),
        (TOO_SMALL, "nvidia.com/gpu", "Insufficient nvidia.com/gpu"),
        (TAINTS, "{gpu: true}", "node(s) had untolerated taint {gpu: true}"),
        ("selector", "", "node(s) didn't match Pod's node affinity/selector"),
        (OTHER_PODS, PodCause.AFFINITY, "node(s) didn't match pod affinity rules"),
        (OTHER_PODS, PodCause.ANTI_AFFINITY, "node(s) didn't match pod anti-affinity rules"),
        (OTHER_PODS, PodCause.SPREAD, "node(s) didn't match pod topology spread constraints"),
        (VOLUMES, "", "node(s) exceed max volume count"),
    ],
)
def test_each_cause_is_said_as_kubernetes_says_it(on, detail, text):
    evidence = NodeEvidence(2, {"x": 2}, (NodeFailures("x", on, 2, str(detail)),))
    assert unavailable_text(evidence) == f"0/2 nodes are available: 2 {text}."


def test_causes_are_summed_over_classes_and_come_in_the_order_of_their_nodes():
    failures = (
        NodeFailures("x", TOO_SMALL, 2, "vcore,memory"),
        NodeFailures("y", "vcore", 2),
        NodeFailures("y", VOLUMES, 3, IN_USE),
    )
    found = causes_of(NodeEvidence(7, {"x": 2, "y": 5}, failures))
    assert list(found.values()) == [4, 3, 2]
    assert list(found)[::2] == ["Insufficient cpu", "Insufficient memory"]
    assert list(causes_of(NodeEvidence(7, {}, failures), PREDICATES).values()) == [3]
