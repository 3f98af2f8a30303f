"""From a pod's spec to where it may be placed."""

import pytest

from services.shim_adapter.translation.constraints import parse_constraints
from services.shim_adapter.translation.errors import ManifestError
from shared.messages.constraints import (
    HostPort,
    NodeTerm,
    PodTerm,
    Requirement,
    SpreadConstraint,
    Taint,
)
from shared.messages.selectors import tolerates
from tests.table import each_row

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def parse(spec, **more):
    return parse_constraints(spec, "spec", labels=more.pop("labels", {}), **more)


def test_node_affinity():
    found = parse(
        {
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [
                                    {"key": "cpus", "operator": "Gt", "values": ["8"]}
                                ]
                            },
                            {
                                "matchFields": [
                                    {"key": "metadata.name", "operator": "In", "values": ["n1"]}
                                ]
                            },
                        ]
                    },
                    PREFERRED: [
                        {
                            "weight": 7,
                            "preference": {
                                "matchExpressions": [{"key": "ssd", "operator": "Exists"}]
                            },
                        }
                    ],
                }
            }
        }
    )
    by_name = NodeTerm(fields=(Requirement("metadata.name", "In", ("n1",)),))
    assert found.node_terms == (NodeTerm((Requirement("cpus", "Gt", ("8",)),)), by_name)
    assert found.preferred_nodes == (NodeTerm((Requirement("ssd", "Exists"),), weight=7),)
    assert found.required_node == ""


def test_a_daemon_sets_pod_must_have_its_node():
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    spec = {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}
    assert parse(spec, is_daemon=True).required_node == "n1"


def test_pod_affinity_with_namespaces_and_label_keys():
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "namespaceSelector": {},
        "matchLabelKeys": ["version", "absent"],
        "mismatchLabelKeys": ["tenant"],
    }
    labels = {"version": "2", "tenant": "t"}
    found = parse(
        {
            "affinity": {
                "podAntiAffinity": {
                    REQUIRED: [term],
                    PREFERRED: [{"weight": 3, "podAffinityTerm": term}],
                }
            }
        },
        labels=labels,
    )
    selector = (
        Requirement("app", "In", ("x",)),
        Requirement("version", "In", ("2",)),
        Requirement("tenant", "NotIn", ("t",)),
    )
    assert found.pod_anti_affinity == (PodTerm("zone", selector, ("*",)),)
    assert found.avoided_pods == (PodTerm("zone", selector, ("*",), 3),)
    assert found.asks_about_pods


def test_a_namespace_by_its_name_label():
    term = {
        "topologyKey": "zone",
        "labelSelector": {},
        "namespaces": ["b"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "a"}},
    }
    found = parse({"affinity": {"podAffinity": {REQUIRED: [term]}}})
    assert found.pod_affinity == (PodTerm("zone", (), ("a", "b")),)


def test_spread_and_ports():
    found = parse(
        {
            "topologySpreadConstraints": [
                {
                    "maxSkew": 2,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"a": "b"}},
                    "nodeTaintsPolicy": "Honor",
                    "nodeAffinityPolicy": "Ignore",
                }
            ],
            "containers": [{"ports": [{"hostPort": 80}, {"containerPort": 9, "protocol": "UDP"}]}],
        }
    )
    selector = (Requirement("a", "In", ("b",)),)
    assert found.spread == (SpreadConstraint("zone", 2, False, selector, 1, False, True),)
    assert found.host_ports == (HostPort(80),)
    own = parse(
        {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 9, "protocol": "UDP"}]}]}
    )
    assert own.host_ports == (HostPort(9, "UDP"),)


@each_row(
    ("operator", "bound", "value", "expected"),
    [
        ("Gt", "900", "950", True),
        ("Gt", "900", "900", False),
        ("Lt", "900", "-1", True),
        ("Lt", "900", "950", False),
        ("Gt", "900", "x", False),
        ("Gt", "900", "", False),
        ("Lt", "900", "1.5", False),
    ],
)
def test_a_toleration_compares_the_number_of_a_taint(operator, bound, value, expected):
    written = [{"key": "sla", "operator": operator, "value": bound, "effect": "NoSchedule"}]
    found = parse({"tolerations": written}).tolerations
    assert tolerates(found, Taint("sla", value)) is expected
    assert not tolerates(found, Taint("other", value))
    assert not tolerates(found, Taint("sla", value, "NoExecute"))


@pytest.mark.parametrize(
    ("toleration", "words"),
    [
        ({"key": "a", "operator": "Gt", "value": "x"}, "Gt needs a whole number"),
        ({"key": "a", "operator": "Lt"}, "Lt needs a whole number"),
        ({"operator": "Gt", "value": "1"}, "without a key it must be Exists"),
    ],
)
def test_a_toleration_that_compares_needs_a_key_and_a_number(toleration, words):
    with pytest.raises(ManifestError, match=words):
        parse({"tolerations": [toleration]})


def test_what_is_null_is_as_if_it_were_not_there():
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    left_out = dict.fromkeys(
        ("minDomains", "labelSelector", "matchLabelKeys", "nodeAffinityPolicy", "nodeTaintsPolicy")
    )
    assert parse({"topologySpreadConstraints": [spread | left_out]}) == parse(
        {"topologySpreadConstraints": [spread]}
    )


def expressions(operator, *values):
    one = {"key": "a", "operator": operator, "values": list(values)}
    return {"nodeSelectorTerms": [{"matchExpressions": [one]}]}


def two_names():
    field = {"key": "metadata.name", "operator": "In", "values": ["a", "b"]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def affinity(kind, value):
    return {"affinity": {kind: {REQUIRED: value}}}


@each_row(
    ("spec", "where", "message"),
    [
        ({"affinity": []}, "spec.affinity", "a map was expected"),
        (affinity("nodeAffinity", {"nodeSelectorTerms": []}), "nodeSelectorTerms", "at least one"),
        (affinity("nodeAffinity", {}), "nodeSelectorTerms", "at least one"),
        (affinity("nodeAffinity", expressions("Gt", "9" * 20)), "values", "one whole number"),
        (affinity("nodeAffinity", expressions("Lt", "1", "2")), "values", "one whole number"),
        (affinity("nodeAffinity", two_names()), "matchFields", "with one value"),
        (
            affinity(
                "nodeAffinity",
                {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Is"}]}]},
            ),
            "matchExpressions[0].operator",
            "one of In, NotIn",
        ),
        (
            affinity(
                "nodeAffinity",
                {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["x"]}]}
                    ]
                },
            ),
            "values",
            "Gt needs one whole number",
        ),
        (
            affinity(
                "nodeAffinity",
                {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "spec", "operator": "In", "values": ["x"]}]}
                    ]
                },
            ),
            "matchFields",
            "only metadata.name",
        ),
        (
            affinity("podAffinity", [{"labelSelector": {}}]),
            "topologyKey",
            "a topologyKey is needed",
        ),
        (
            affinity(
                "podAffinity",
                [
                    {
                        "topologyKey": "z",
                        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]},
                    }
                ],
            ),
            "values",
            "at least one value",
        ),
        (
            affinity(
                "podAffinity",
                [{"topologyKey": "z", "namespaceSelector": {"matchLabels": {"team": "a"}}}],
            ),
            "namespaceSelector",
            "not supported yet",
        ),
        (
            {
                "affinity": {
                    "podAffinity": {
                        PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "z"}}]
                    }
                }
            },
            "weight",
            "1 to 100",
        ),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z"}]},
            "whenUnsatisfiable",
            "DoNotSchedule",
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 0}
                ]
            },
            "maxSkew",
            "above 0",
        ),
        ({"containers": [{"ports": [{"hostPort": 70000}]}]}, "hostPort", "a port number"),
        ({"nodeSelector": {"a": 1}}, "nodeSelector", "a map of texts"),
    ],
)
def test_what_does_not_hold_is_refused_at_its_field(spec, where, message):
    with pytest.raises(ManifestError) as error:
        parse(spec)
    assert where in error.value.field_path
    assert message in error.value.message
