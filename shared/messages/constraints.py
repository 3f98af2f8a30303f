"""Where an ask may be placed: Kubernetes' constraints of pods on nodes and on other pods.

All values are tuples, so that constraints are hashable keys. Source: the Kubernetes documentation
of node selection, affinity, taints and topology spread.
"""

from dataclasses import dataclass

ALL_NAMESPACES = "*"


@dataclass(frozen=True, slots=True)
class Taint:
    """A Kubernetes taint: pods that do not tolerate it stay away."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A Kubernetes toleration: Equal, Exists, Gt, Lt; with Exists no key tolerates everything."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a selector: In, NotIn, Exists, DoesNotExist; Gt and Lt for nodes only."""

    key: str
    operator: str = "In"
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """A node selector term: all expressions on labels, and ``fields`` on metadata.name, hold.

    A term with neither matches nothing. ``weight`` is for preferred terms alone, 1 to 100.
    """

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    weight: int = 0


@dataclass(frozen=True, slots=True)
class PodTerm:
    """Pods that a selector matches, in one topology domain (nodes with the same label value).

    ``namespaces`` empty is the pod's own, ``*`` every one. ``weight`` is for preferred terms.
    """

    topology_key: str
    selector: tuple[Requirement, ...] = ()
    namespaces: tuple[str, ...] = ()
    weight: int = 0


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """How evenly pods that the selector matches are spread over the domains of a topology key.

    ``hard`` is DoNotSchedule, otherwise ScheduleAnyway.
    """

    topology_key: str
    max_skew: int = 1
    hard: bool = True
    selector: tuple[Requirement, ...] = ()
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that the pod takes for itself."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"  # noqa: S104 - Kubernetes' word for every address


@dataclass(frozen=True, slots=True)
class AttachedVolume:
    """A volume that is attached to the pod's node, which takes so many of one ``driver``.

    ``claim`` (with its namespace) names a volume that several pods of a node may share; it is
    attached once. "": no other pod uses it. An ``exclusive`` claim (ReadWriteOncePod) may be used
    by one pod at a time, on any node. Volumes of driver "" are not counted.
    """

    driver: str
    claim: str = ""
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where an ask may be placed. ``required_node`` is that of a DaemonSet's pod.

    ``node_terms`` are alternatives; all other constraints must be met. ``namespace`` is the pod's,
    set only if pod terms need it. A share of GPUs is spread evenly over ``gpu_devices``.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    required_node: str = ""
    node_terms: tuple[NodeTerm, ...] = ()
    preferred_nodes: tuple[NodeTerm, ...] = ()
    pod_affinity: tuple[PodTerm, ...] = ()
    pod_anti_affinity: tuple[PodTerm, ...] = ()
    preferred_pods: tuple[PodTerm, ...] = ()
    avoided_pods: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    namespace: str = ""
    volumes: tuple[AttachedVolume, ...] = ()
    gpu_devices: int = 1

    @property
    def of_nodes(self) -> "Constraints":
        """The constraints on nodes only, equal for asks that differ in pod terms."""
        if not self.asks_about_pods and not self.namespace:
            return self
        return Constraints(
            node_selector=self.node_selector,
            tolerations=self.tolerations,
            required_node=self.required_node,
            node_terms=self.node_terms,
            preferred_nodes=self.preferred_nodes,
            gpu_devices=self.gpu_devices,
        )

    @property
    def asks_about_pods(self) -> bool:
        """Whether the placement depends on other pods."""
        return self is not NO_CONSTRAINTS and bool(
            self.pod_affinity
            or self.pod_anti_affinity
            or self.preferred_pods
            or self.avoided_pods
            or self.spread
            or self.host_ports
            or self.volumes
        )


NO_CONSTRAINTS = Constraints()
