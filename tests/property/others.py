"""What others do to a cluster under the scheduler's hands: foreign pods, failed binds, resizes."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from shared.messages.conversions import ask_of
from shared.messages.interface import Allocation, AllocationRelease, TerminationType
from tests.property.material import RESOURCES, TAGS


class Others:
    """Rules for a machine with ``nodes``, ``bound``, ``asked``, ``to_confirm`` and ``tell``."""

    foreign: dict

    def foreign_now(self):
        """Return the foreign pods whose nodes are there, as the resource manager would tell them."""
        return [item for item in self.foreign.values() if item.node_id in self.nodes]

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), resource=st.sampled_from(RESOURCES), tags=st.sampled_from(TAGS))
    def another_scheduler_places(self, data, resource, tags):
        node = data.draw(st.sampled_from(sorted(self.nodes)))
        key = self.name("foreign")
        tags = {**tags, "foreign": "default"}
        self.foreign[key] = Allocation(key, "", node, resource, allocation_tags=tags)
        self.tell(allocations=(self.foreign[key],))

    @precondition(lambda self: self.foreign_now())
    @rule(data=st.data(), resource=st.sampled_from(RESOURCES))
    def a_foreign_pod_is_resized(self, data, resource):
        held = data.draw(st.sampled_from(self.foreign_now()))
        self.foreign[held.allocation_key] = replace(held, resource_per_alloc=resource)
        self.tell(allocations=(self.foreign[held.allocation_key],))

    @precondition(lambda self: self.foreign)
    @rule(data=st.data())
    def a_foreign_pod_ends(self, data):
        key = data.draw(st.sampled_from(sorted(self.foreign)))
        del self.foreign[key]
        self.tell(releases=(AllocationRelease("", key, TerminationType.STOPPED_BY_RM),))

    @precondition(lambda self: self.core.partition.applications and self.nodes)
    @rule(data=st.data(), resource=st.sampled_from(RESOURCES), older_ns=st.integers(0, 3))
    def a_pod_is_found_that_is_older_than_its_application(self, data, resource, older_ns):
        node = data.draw(st.sampled_from(sorted(self.nodes)))
        known = self.core.partition.applications
        app = data.draw(st.sampled_from(sorted(known)))
        created_ns = known[app].submission_time_ns - older_ns
        found = Allocation(self.name("found"), app, node, resource, create_time_ns=created_ns)
        self.shrunk = True  # the resource manager does as it likes
        self.bound[found.allocation_key] = found
        self.tell(allocations=(found,))
        self.gangs.remember(self.core)

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def a_bind_fails(self, data):
        key = data.draw(st.sampled_from(sorted(self.bound)))
        held = self.bound.pop(key)
        why = TerminationType.SCHEDULING_FAILED_ON_RM
        if self.to_confirm.pop(key, None) is None and key not in self.released:
            self.asked[key] = ask_of(held)
        self.tell(releases=(AllocationRelease(held.application_id, key, why),))
        self.last = {}  # said again it would be news: the next bind of the pod failed as well

    @precondition(lambda self: self.bound)
    @rule(data=st.data(), resource=st.sampled_from(RESOURCES))
    def a_pod_is_resized(self, data, resource):
        key = data.draw(st.sampled_from(sorted(self.bound)))
        if self.bound[key].placeholder or self.bound[key].node_id not in self.nodes:
            return
        self.shrunk = True  # the resource manager does as it likes: a node may be over its capacity
        self.bound[key] = replace(self.bound[key], resource_per_alloc=resource)
        self.tell(allocations=(self.bound[key],))
