"""The labels that nodes have for Muster alone: tiers of HyperNodes, and devices of several nodes.

Rule 1: they are worked out for all nodes when something of them has changed, once for all that was
        seen meanwhile; a node that is seen again keeps those that it had until then.
No I/O.
"""

from services.shim_adapter.backends.kubernetes.configuration import Configuration
from services.shim_adapter.backends.kubernetes.observed import TopologySeen
from services.shim_adapter.backends.kubernetes.tied_groups import TiedGroups
from services.shim_adapter.backends.kubernetes.topologies import TIER_LABEL, Topologies
from services.shim_adapter.mirror.calls import News, NodeNews
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import NodeRecord


class NodeTrees:
    """``renew`` says what has changed."""

    def __init__(
        self,
        world: World,
        configuration: Configuration,
        topologies: Topologies,
        tied: TiedGroups,
    ) -> None:
        self._world = world
        self._configuration = configuration
        self._topologies = topologies
        self._tied = tied
        self._has_others = False

    @property
    def has_others(self) -> bool:
        """Return whether something has changed since the labels were worked out."""
        return self._has_others or self._tied.has_other_domains

    def on_topology(self, seen: TopologySeen, _: int) -> list[News]:
        """Take in a Topology, or a HyperNode."""
        if self._topologies.see(seen.kind, seen.name, seen.body):
            self._has_others = True
        return []

    def retain_labels(self, record: NodeRecord, known: NodeRecord | None) -> None:
        """Have a node that is seen again keep its labels of ours, until they are worked out."""
        before = {} if known is None else known.labels
        own = {key: value for key, value in before.items() if self._is_own(key)}
        if own:
            record.labels = {**record.labels, **own}
        if self._topologies.hyper_nodes and (known is None or dict(known.labels) != record.labels):
            self._has_others = True

    def _is_own(self, label: str) -> bool:
        return label.startswith(TIER_LABEL) or self._tied.is_own_label(label)

    def renew(self) -> tuple[list[News], bool]:
        """Give nodes the labels that they have now; return the news, and if levels have changed."""
        self._has_others = False
        nodes = self._world.nodes
        own = {
            name: {key: text for key, text in node.labels.items() if not self._is_own(key)}
            for name, node in sorted(nodes.items())
        }
        tiers, domains = self._topologies.tiers_of(own), self._tied.domains()
        news: list[News] = []
        for name, plain in own.items():
            labels = plain | tiers.get(name, {}) | domains.get(name, {})
            if labels != nodes[name].labels:
                nodes[name].labels = labels
                news.append(NodeNews(nodes[name], "update"))
        before = self._configuration.scheduler_settings
        self._configuration.found_levels = self._topologies.levels
        self._topologies.is_set = self._configuration.sets_levels
        return news, before != self._configuration.scheduler_settings
