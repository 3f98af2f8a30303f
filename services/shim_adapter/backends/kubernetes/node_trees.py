"""Node labels that only Muster sees: tiers of HyperNodes, and devices shared by several nodes.

Rule 1: they are computed for all nodes after a change, once for all observations in between; until
        then an updated node keeps its labels.
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
    """The labels; ``renew`` returns the changes."""

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
        """Whether something has changed since the labels were computed."""
        return self._has_others or self._tied.has_other_domains

    def on_topology(self, seen: TopologySeen, _: int) -> list[News]:
        """Apply a change of a Topology or HyperNode."""
        if self._topologies.see(seen.kind, seen.name, seen.body):
            self._has_others = True
        return []

    def retain_labels(self, record: NodeRecord, known: NodeRecord | None) -> None:
        """Keep Muster's own labels of an updated node until they are computed again."""
        before = {} if known is None else known.labels
        own = {key: value for key, value in before.items() if self._is_own(key)}
        if own:
            record.labels = {**record.labels, **own}
        if self._topologies.hyper_nodes and (known is None or dict(known.labels) != record.labels):
            self._has_others = True

    def _is_own(self, label: str) -> bool:
        return label.startswith(TIER_LABEL) or self._tied.is_own_label(label)

    def renew(self) -> tuple[list[News], bool]:
        """Compute the labels of all nodes; return reports, and whether the levels have changed."""
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
