"""Gangs that must be in one rack, whatever fails in whatever order: the level is never broken.

Nodes die, drain and come, pods are lost, minimums change, others are owed room. What elastic gangs
are promised holds as well (``test_elastic.py``): nothing but what fails brings one below its minimum.
"""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from shared.messages.interface import (
    GangChanged,
    NodeAction,
    NodeInfo,
    TopologyConstraint,
)
from tests.property.test_elastic import ElasticMachine, gangs, leaves_of

RACK = TopologyConstraint(required="rack")
SETTINGS = st.sampled_from(
    [
        (("policy", "kai"),),
        (("gangAdmission", "cluster"), ("reservations", "gang")),
        (("actions", "allocate,preempt,stalegangeviction"),),
        (("actions", "allocate,consolidation,preempt,stalegangeviction"), ("restartRoom", "0s")),
    ]
)


@st.composite
def in_racks(draw):
    """Draw a gang of which all is in one rack, or each of some task groups."""
    gang = draw(gangs())
    if draw(st.booleans()):
        return replace(gang, topology=RACK)
    parts = [
        replace(part, topology=RACK) if not part.is_group and draw(st.booleans()) else part
        for part in gang.subgroups
    ]
    return replace(gang, subgroups=tuple(parts))


class RacksMachine(ElasticMachine):
    drawn = staticmethod(in_racks)

    @initialize(settings=SETTINGS, sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4))
    def start(self, settings, sizes):
        self.begin((*settings, ("topologyLevels", "rack")))
        for vcore in sizes:
            self.add_node(vcore)

    def labels(self, name):
        return {"rack": f"r{int(name[1:]) % 2}"}

    @rule(data=st.data())
    @precondition(lambda self: len(self.sizes) > 1)
    def a_node_dies(self, data):
        name = data.draw(st.sampled_from(sorted(self.sizes)))
        del self.sizes[name]
        pods = self.core.partition.nodes.nodes[name].allocations.values()
        released = [
            key for app in self.core.partition.applications.values() for key in app.released
        ]
        lost = [
            (pod.application_id, pod.task_group_name)
            for pod in pods
            if pod.allocation_key not in released
        ]
        for pod in pods:
            self.leaving.pop(pod.allocation_key, None)
        gone = NodeInfo(name, NodeAction.DECOMISSION)
        self.step(lambda: self.core.update(nodes=(gone,)), lost)

    @rule(data=st.data(), back=st.booleans())
    def a_node_drains_or_is_back(self, data, back):
        name = data.draw(st.sampled_from(sorted(self.sizes)))
        action = NodeAction.DRAIN_TO_SCHEDULABLE if back else NodeAction.DRAIN_NODE
        self.step(lambda: self.core.update(nodes=(NodeInfo(name, action),)))

    @rule(data=st.data())
    @precondition(lambda self: self.gangs)
    def a_minimum_changes(self, data):
        name = data.draw(st.sampled_from(sorted(self.gangs)))
        gang = self.gangs[name]
        if self.core.partition.applications.get(name) is None:
            return
        part = data.draw(st.sampled_from(leaves_of(gang)))
        other = replace(part, minimum=data.draw(st.integers(0, 4)))
        parts = tuple(other if each is part else each for each in gang.subgroups)
        changed = replace(gang, subgroups=parts)
        self.gangs[name] = changed
        self.core.update(gangs_changed=(GangChanged(name, changed),))

    @invariant()
    def a_required_level_is_never_broken(self):
        for name, gang in getattr(self, "gangs", {}).items():
            app = self.core.partition.applications.get(name)
            where = {}
            for pod in app.allocations.values() if app is not None else ():
                rack = self.labels(pod.node_id)["rack"]
                where.setdefault(pod.task_group_name, {})[rack] = None
            bound = [part.name for part in leaves_of(gang) if part.topology.required]
            racks = [list(where.get(part, ())) for part in bound]
            if gang.topology.required:
                racks = [list(dict.fromkeys(rack for found in where.values() for rack in found))]
            assert all(len(found) <= 1 for found in racks), (gang, where)


TestRacks = RacksMachine.TestCase
