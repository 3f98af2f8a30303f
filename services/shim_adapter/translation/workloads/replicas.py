"""What a workload comes to: pods of a few templates, and the gang they start as."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from services.shim_adapter.records import NodeRecord
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from shared.messages.constraints import Requirement
from shared.messages.gang_tree import GangTree, tree_of
from shared.messages.interface import (
    NO_GANG_SETTINGS,
    NO_TOPOLOGY,
    GangSettings,
    TopologyConstraint,
)

MAX_PODS = 10_000


@dataclass(frozen=True, slots=True)
class Replicas:
    """Pods of one template. ``minimum`` of them belong to the gang; 0: none does.

    ``group`` is the name of their task group, ``where`` the template's place in the document,
    ``rank`` what orders groups when a gang has fewer members than there are pods: the first start.
    """

    group: str
    names: tuple[str, ...]
    template: Mapping[str, Any]
    where: str
    minimum: int = 0
    rank: int = 0
    required_nodes: tuple[str, ...] = ()  # of a DaemonSet: one a pod
    topology: TopologyConstraint = NO_TOPOLOGY  # that its kind asks for
    together: str = ""  # with which others it goes into one domain
    slice_size: int = 0  # of slices that its template asks for and states no size of


@dataclass(frozen=True, slots=True)
class Network:
    """Of which tier of HyperNodes a gang is to be in one: by number, or by name (None: by that)."""

    tier: int | None
    name: str = ""
    is_soft: bool = False


@dataclass(frozen=True, slots=True)
class SubGroupPolicy:
    """Which pods of a PodGroup are subgroups, by their labels, and in which domain each of them is.

    Pods that match ``selector`` and have equal values of the labels ``keys`` are one subgroup: it
    starts with ``size`` pods. ``least`` subgroups start at once (None: it does not say).
    """

    name: str
    selector: tuple[Requirement, ...]
    keys: tuple[str, ...]
    size: int
    least: int | None
    topology: TopologyConstraint = NO_TOPOLOGY
    network: Network | None = None


@dataclass(frozen=True, slots=True)
class Gang:
    """A PodGroup of the same submission: so many pods at once, in all or by subgroup.

    Its priority class, and that it may not be preempted, hold for pods that do not say it; nor may
    those of a priority of ``kept_from`` on (None: that counts for nothing).
    ``timeout_seconds`` is for how long its places may be waited for (0: it does not say).

    One whose ``terms`` have subgroups starts by these, without placeholders; ``minimum`` and
    ``subgroups`` count for nothing then.

    ``priority`` and ``lets_preempt`` are a group's own word, which holds for all its pods (None:
    they say it themselves). ``network``, ``topologies`` (the names of KAI's, by subgroup, that of
    the gang under "") and ``is_kueues`` say which tree of the cluster its topology is about, where
    that is not the setting's. ``policies`` say which subgroups its pods are of, by
    their labels. ``claims`` are its pods' in common: what each entry names, and
    whether that is a claim, not a template. ``parent`` is the group of groups that it is in
    ("": none), ``workload`` what both are of ("": it does not say).
    """

    name: str
    minimum: int
    queue: str = ""
    subgroups: Mapping[str, int] = field(default_factory=dict)
    priority_class: str = ""
    is_preemptible: bool = True
    timeout_seconds: int = 0
    kept_from: int | None = None
    terms: GangSettings = NO_GANG_SETTINGS
    topology: TopologyConstraint = NO_TOPOLOGY  # of one that has placeholders: all its pods'
    priority: int | None = None
    lets_preempt: bool | None = None
    has_own_class: bool = False  # its priority class comes before that of its pods
    parent: str = ""
    workload: str = ""
    network: Network | None = None
    topologies: Mapping[str, str] = field(default_factory=dict)
    is_kueues: bool = False
    policies: tuple[SubGroupPolicy, ...] = ()
    claims: Mapping[str, tuple[str, bool]] = field(default_factory=dict)

    @property
    def names_a_tree(self) -> bool:
        """Return whether what its topology means hangs on objects of the cluster."""
        of_policies = any(policy.network for policy in self.policies)
        return bool(self.network or self.topologies or self.is_kueues or of_policies)

    @property
    def tree(self) -> GangTree | None:
        """Return the tree of minimums of one that starts without placeholders, else None."""
        return tree_of(self.terms)

    def minima(self) -> dict[str, int]:
        """Return the minimum of each of its subgroups, of one that has none under ""."""
        tree = self.tree
        if tree is not None and (tree.only is None or tree.only.name != self.name):
            return tree.minima()
        return dict(self.subgroups) or {"": self.minimum}

    def part_of(self, subgroup: str) -> str:
        """Return the name of the task group of its pods that name a subgroup ("": none)."""
        return subgroup or self.terms.subgroups[0].name

    def lets_be_preempted(self, priority: int) -> bool:
        """Return whether its pods of a priority may be preempted."""
        return self.is_preemptible and (self.kept_from is None or priority < self.kept_from)


@dataclass(frozen=True, slots=True)
class Submission:
    """What else a document's meaning hangs on: the nodes that there are, and other documents."""

    nodes: tuple[NodeRecord, ...] = ()
    runtimes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gangs: Mapping[str, Gang | ManifestError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Workload:
    """A document to expand: its spec, its name, and what was submitted with it."""

    kind: str
    name: str
    spec: Mapping[str, Any]
    metadata: Mapping[str, Any]
    body: Mapping[str, Any]
    submission: Submission


@dataclass(frozen=True, slots=True)
class Expansion:
    """What an expander answers. ``queue`` is the one that the kind itself names ("": none)."""

    replicas: tuple[Replicas, ...]
    queue: str = ""


Expander = Callable[[Workload], Expansion]


def whole(
    spec: Mapping[str, Any],
    key: str,
    default: int,
    where: str = "spec",
    *,
    most: int | None = MAX_PODS,
) -> int:
    """Return a whole number of a spec, 0 or more, of pods unless ``most`` is None.

    Raises ManifestError with the field.
    """
    value = spec.get(key)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise ManifestError(f"{where}.{key}", f"a whole number of 0 or more, found {value!r}")
    if most is not None and value > most:
        raise ManifestError(f"{where}.{key}", f"{value} pods, at most {most}")
    return value


def items(spec: Mapping[str, Any], key: str, where: str = "spec") -> list[Any]:
    """Return a list of a spec; absent is empty. Raises ManifestError with the field."""
    value = spec.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ManifestError(f"{where}.{key}", f"a list was expected, found {type(value).__name__}")
    return value


def inner(spec: Mapping[str, Any], key: str, where: str = "spec") -> dict[str, Any]:
    """Return a map of a spec; absent is empty. Raises ManifestError with the field."""
    return mapping(spec.get(key) or {}, f"{where}.{key}")


def text(spec: Mapping[str, Any], key: str, where: str = "spec") -> str:
    """Return a text of a spec; absent is "". Raises ManifestError with the field."""
    value = spec.get(key) or ""
    if not isinstance(value, str):
        raise ManifestError(f"{where}.{key}", f"a text was expected, found {value!r}")
    return value


def numbered(name: str, count: int) -> tuple[str, ...]:
    """Return ``name-0`` and so on."""
    return tuple(f"{name}-{at}" for at in range(count))


def with_minimum(replicas: list[Replicas], minimum: int | None, where: str) -> tuple[Replicas, ...]:
    """Let a gang have ``minimum`` members in all, taken in order of rank; None: all.

    Raises ManifestError when there are not that many pods.
    """
    total = sum(len(item.names) for item in replicas)
    if minimum is None:
        return tuple(replace(item, minimum=len(item.names)) for item in replicas)
    if minimum > total:
        raise ManifestError(where, f"{minimum} at least, and there are {total} pods in all")
    left = minimum
    shares: dict[str, int] = {}
    for item in sorted(replicas, key=lambda item: item.rank):
        shares[item.group] = min(left, len(item.names))
        left -= shares[item.group]
    return tuple(replace(item, minimum=shares[item.group]) for item in replicas)


def refuse_suspended(workload: Workload) -> None:
    """Refuse a workload that its owner has suspended: its operator would make no pods."""
    suspended = workload.spec.get("suspend")
    if not isinstance(suspended, bool | None):
        raise ManifestError("spec.suspend", f"true or false, found {suspended!r}")
    if suspended:
        raise ManifestError(
            "spec.suspend", "it is suspended: no pods are created until it is resumed"
        )
