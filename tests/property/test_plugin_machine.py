"""The scheduler's machine with plugins of every kind: what they are told, and who waits for them.

What they allow follows from what they were told, so a trial whose end they do not hear of, or an
allocation that comes without their knowing, shows at the next step.
"""

from collections import Counter

from hypothesis import settings
from hypothesis.stateful import invariant

from services.core.scheduler.model.policy import Reads, reads
from shared.model.reasons import Reason
from tests.builders import Core
from tests.property.test_scheduler_machine import SchedulerMachine
from tests.soak import examples

MOST_ON_A_NODE, MOST_OF_A_USER = 3, 6000
LARGE = 2000  # of vcore


class Counts:
    """A plugin that counts by what it is told, and says yes and no by what it has counted."""

    def __init__(self, policy) -> None:
        self.pods: Counter = Counter()  # by node and application
        self.vcore: Counter = Counter()  # by user
        policy.feasible.append(reads(Reads.PODS)(lambda node, _: self.is_open(node)))
        policy.capacity.append(reads(Reads.LEDGERS)(self.why_not))
        policy.on_allocate.append(lambda application, held: self.count(application, held, 1))
        policy.on_deallocate.append(lambda application, held: self.count(application, held, -1))

    def count(self, application, held, change) -> None:
        self.pods[held.node_id, application.id] += change
        amount = held.resource_per_alloc.get("vcore", 0)
        self.vcore[application.request.ugi.user] += change * amount

    def is_open(self, node) -> bool:
        counts = (count for (name, _), count in self.pods.items() if name == node.node_id)
        return sum(counts) < MOST_ON_A_NODE

    def why_not(self, application, amount) -> str:
        wanted = self.vcore[application.request.ugi.user] + amount.get("vcore", 0)
        return "" if wanted <= MOST_OF_A_USER else f"{wanted} of {MOST_OF_A_USER}"


def judges(policy) -> None:
    """Order applications and nodes, and spare some victims, without saying what is read."""
    policy.order.append(lambda application: len(application.allocations))
    policy.score.append(lambda node, shape: len(node.allocations))
    policy.victim.append(lambda action, victim, preemptor: victim.allocation.priority == 0)


class PluginMachine(SchedulerMachine):
    def make_core(self, config, epoch=1, settings=()):
        plugins = {"counts": self.register_counts, "judges": judges}
        self.settings = (*settings, ("plugins", ",".join(plugins)))
        return Core(config, epoch, self.settings, plugins)

    def register_counts(self, policy):
        self.counts = Counts(policy)

    @invariant()
    def what_they_were_told_is_what_is_on_the_nodes(self):
        if not hasattr(self, "core"):
            return
        on_nodes: Counter = Counter()
        vcore: Counter = Counter()
        applications = self.core.partition.applications
        for node in self.core.partition.nodes.rows:
            for held in node.allocations.values():
                on_nodes[node.node_id, held.application_id] += 1
                user = applications[held.application_id].request.ugi.user
                vcore[user] += held.resource_per_alloc.get("vcore", 0)
        assert {at: count for at, count in self.counts.pods.items() if count} == on_nodes
        assert +self.counts.vcore == +vcore

    @invariant()
    def whoever_waits_for_one_is_refused_by_it_still(self):
        if not hasattr(self, "core"):
            return
        hooks = self.core.partition.hooks
        for application in self.core.partition.applications.values():
            for group in application.groups.values():
                if group.refused is not None and application.may_schedule:
                    assert hooks.no_capacity(application, group.bucket.shape.resource)
            if application.is_refused_for(Reason.PLUGIN):
                assert hooks.no_capacity(application, application.outstanding())

    @invariant()
    def none_has_failed(self):
        if hasattr(self, "core"):
            assert self.core.reports == []


TestPlugins = PluginMachine.TestCase
TestPlugins.settings = settings(max_examples=examples(20))


def may_take(node, amount) -> bool:
    """Return whether a node may take an amount: those of the zone y take small ones only."""
    return node.labels.get("zone") != "y" or amount.get("vcore", 0) < LARGE


def by_zone(policy) -> None:
    policy.feasible.append(reads(Reads.NODES)(lambda node, shape: may_take(node, shape.resource)))
    policy.order.append(reads(Reads.NOTHING)(lambda application: -len(application.id)))


class FixedPluginMachine(SchedulerMachine):
    """With hooks that look at what nodes are: the index and the runs serve them."""

    kind_of_core = Core

    def make_core(self, config, epoch=1, settings=()):
        plugins = {"zones": by_zone}
        self.settings = (*settings, ("plugins", ",".join(plugins)))
        return self.kind_of_core(config, epoch, self.settings, plugins)

    def heard(self, responses):
        for response in responses:
            for allocation in response.new_allocations:
                node = self.core.partition.nodes.nodes.get(allocation.node_id)
                assert node is None or may_take(node, allocation.resource_per_alloc)
        super().heard(responses)

    @invariant()
    def the_index_finds_what_a_look_at_all_nodes_finds(self):
        if not hasattr(self, "core"):
            return
        partition = self.core.partition
        nodes = partition.nodes
        for shape in {
            group.bucket.shape
            for app in partition.applications.values()
            for group in app.groups.values()
        }:
            if shape.constraints.required_node or shape.constraints.asks_about_pods:
                continue
            open_to_it = [
                node
                for node in nodes.rows
                if not node.reservations
                and nodes.filters.takes.holds(node, shape)
                and may_take(node, shape.resource)
            ]
            scores = {node.node_id: nodes.order.score.of_node(node, shape) for node in open_to_it}
            by_score = sorted(open_to_it, key=lambda node: (scores[node.node_id], node.node_id))
            first = next(iter(by_score), None)
            found = nodes.order.best(shape)
            if shape.constraints.preferred_nodes:
                assert (found is None) is (first is None)
            else:
                assert found is first


TestFixedPlugins = FixedPluginMachine.TestCase
TestFixedPlugins.settings = settings(max_examples=examples(20))
