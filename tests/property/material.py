"""What the state machine chooses from: configurations, requests, constraints, users."""

from shared.messages.constraints import (
    Constraints,
    HostPort,
    PodTerm,
    Requirement,
    SpreadConstraint,
)
from tests.builders import config_of

CONFIGS = [
    config_of("{name: a, resources: {max: {vcore: 8}}}", "{name: b}"),
    config_of(
        "{name: a, resources: {max: {vcore: 4}, guaranteed: {vcore: 2}}}",
        "{name: b, resources: {max: {vcore: 6}}}",
    ),
    config_of(
        "{name: a, maxapplications: 2}", "{name: b, properties: {application.sort.policy: fair}}"
    ),
    config_of("{name: b, properties: {application.sort.priority: disabled}}"),
    config_of(
        "{name: a, limits: [{users: [alice], maxresources: {vcore: 3}, maxapplications: 2}, "
        "{groups: [dev], maxresources: {vcore: 4}}, {groups: ['*'], maxapplications: 1}]}",
        "{name: b, limits: [{users: ['*'], maxresources: {memory: 500}}]}",
    ),
    config_of(
        "{name: a, properties: {priority.offset: '7', application.unschedasks.backoff: '2'}}",
        "{name: p, properties: {priority.policy: fence, priority.offset: '-3'}, "
        "childtemplate: {maxapplications: 2, properties: {priority.offset: '4'}}, parent: true, "
        "queues: [{name: b, properties: {priority.offset: '2'}}]}",
    ),
    config_of("{name: a}").removesuffix("}]")
    + ", placementrules: [{name: provided, create: true}]}]",
    "partitions: [{name: default, queues: [{name: root, queues: 5}]}]",
]
# Queues that are owed room, and queues that get less than they use.
PREEMPTION_CONFIGS = [
    config_of(
        "{name: a, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 4}}}",
        "{name: b, properties: {preemption.delay: 1s}, resources: {guaranteed: {vcore: 2, memory: 300}}}",
        "{name: p, resources: {max: {vcore: 6}}, queues: [{name: b}]}",
    ),
    config_of(
        "{name: a, properties: {quota.preemption.delay: 1s}, resources: {max: {vcore: 2}}}",
        "{name: b, resources: {guaranteed: {pods: 2}}}",
    ).removesuffix("}]")
    + ", preemption: {quotapreemptionenabled: true}}]",
]
RESOURCES = [
    {"vcore": 1000, "pods": 1},
    {"vcore": 2000, "memory": 100, "pods": 1},
    {"memory": 300, "pods": 1},
]
APART = PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("x",)),))
SPREAD = SpreadConstraint("zone", selector=(Requirement("app", "Exists"),))
# Real pods may be larger than any placeholder, in one type or in all.
REAL_RESOURCES = [
    *RESOURCES,
    {"vcore": 3000, "memory": 50, "pods": 1},
    {"vcore": 1500, "memory": 250, "pods": 1},
    {"vcore": 4000, "pods": 2},
]
SELECTORS = [
    Constraints(),
    Constraints(),
    Constraints((("zone", "z"),)),
    Constraints(required_node="n2"),
    Constraints(pod_anti_affinity=(APART,), namespace="d"),
    Constraints(pod_affinity=(APART,), namespace="d"),
    Constraints(spread=(SPREAD,), namespace="d"),
    Constraints(host_ports=(HostPort(80),)),
]
TAGS = [{}, *({"kubernetes.io/meta/namespace": "d", "kubernetes.io/label/app": v} for v in "xy")]
USERS = [("alice", ()), ("bob", ("dev",)), ("carol", ("other",))]
