"""Gangs and others in two leaves of one parent: what the machines about them have in common."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from shared.messages.constraints import Constraints, PodTerm, Requirement
from shared.messages.interface import (
    Allocation,
    AllocationAsk,
    AllocationAskRelease,
    NodeAction,
    NodeInfo,
    RemoveApplicationRequest,
    TerminationType,
)
from shared.messages.protocol import Heartbeat
from shared.model.units import seconds
from tests.builders import config_of

STOPPED = TerminationType.STOPPED_BY_RM
CONFIGS = [
    config_of("{name: p, resources: {max: {vcore: 8m}}, queues: [{name: a}, {name: b}]}"),
    config_of(
        "{name: p, queues: [{name: a, resources: {max: {vcore: 6m}}}, "
        "{name: b, maxapplications: 2, resources: {max: {vcore: 4m, memory: 3}}}]}"
    ),
]
SIZES = [{"vcore": 1}, {"vcore": 2}, {"vcore": 1, "memory": 1}]
OF_THE_JOB = (Requirement("job", "In", ("g",)),)
SHAPES = [
    Constraints(),
    Constraints(node_selector=(("disk", "ssd"),)),
    Constraints(pod_anti_affinity=(PodTerm("host", OF_THE_JOB),), namespace="ns"),
    Constraints(pod_affinity=(PodTerm("disk", OF_THE_JOB),), namespace="ns"),
]
TAGS = {"kubernetes.io/label/job": "g", "kubernetes.io/meta/namespace": "ns"}


def placeholder(key, name, group, size, **more):
    """Return the ask of a gang's member, whose labels the shapes ask about."""
    return AllocationAsk(
        key, name, size, placeholder=True, task_group_name=group, allocation_tags=TAGS, **more
    )


class TwoLeaves:
    """The rules that every such machine has; ``core`` and ``count`` are the machine's to set."""

    @property
    def apps(self):
        return self.core.partition.applications

    def name(self):
        """Return a name that is new, a moment later."""
        self.count += 1
        self.core.now_ns += 1
        return f"app{self.count}"

    def node_is(self, at, disk, vcore):
        """Have a node come, or be another than it was."""
        name, capacity = f"n{at}", {"vcore": vcore, "memory": 4}
        known = name in self.core.partition.nodes.nodes
        action = NodeAction.UPDATE if known else NodeAction.CREATE
        labels = {"disk": disk, "host": name}
        self.core.update(nodes=(NodeInfo(name, action, capacity, labels=labels),))

    @rule(for_seconds=st.sampled_from([5, 61, 300]))
    def time_passes(self, for_seconds):
        self.core.now_ns += seconds(for_seconds)
        self.core.send(Heartbeat("t"), epoch=0)

    @precondition(lambda self: any(app.group_of for app in self.apps.values()))
    @rule(data=st.data())
    def an_ask_is_withdrawn(self, data):
        asked = [(key, name) for name, app in self.apps.items() for key in app.group_of]
        key, name = data.draw(st.sampled_from(sorted(asked)))
        self.core.update(ask_releases=(AllocationAskRelease(name, key, STOPPED),))

    @precondition(lambda self: self.apps and self.core.partition.nodes.nodes)
    @rule(
        data=st.data(),
        size=st.sampled_from(SIZES),
        older_ns=st.sampled_from([1, 2, 3, seconds(70)]),
    )
    def a_pod_is_found_that_is_older_than_its_application(self, data, size, older_ns):
        app = data.draw(st.sampled_from(sorted(self.apps)))
        node = data.draw(st.sampled_from(sorted(self.core.partition.nodes.nodes)))
        created_ns = self.apps[app].submission_time_ns - older_ns
        found = Allocation(f"{self.name()}-found", app, node, size, create_time_ns=created_ns)
        self.core.update(allocations=(found,))
        self.forget_last_step()

    @precondition(lambda self: self.apps)
    @rule(
        data=st.data(),
        size=st.sampled_from(SIZES),
        older_ns=st.sampled_from([0, 1, 3]),
        priority=st.sampled_from([0, 5]),
    )
    def asks_are_older_than_their_application(self, data, size, older_ns, priority):
        app = data.draw(st.sampled_from(sorted(self.apps)))
        created_ns = self.apps[app].submission_time_ns - older_ns
        self.core.asks(app, [self.name()], size, create_time_ns=created_ns, priority=priority)
        self.forget_last_step()

    def forget_last_step(self):
        """Compare nothing with the step before: what was found may be over every limit."""

    @precondition(lambda self: self.apps)
    @rule(data=st.data())
    def an_application_ends(self, data):
        app = data.draw(st.sampled_from(sorted(self.apps)))
        self.core.update(remove_applications=(RemoveApplicationRequest(app),))
