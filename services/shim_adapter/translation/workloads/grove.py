"""Grove's PodGangs: groups of pods, each with a minimum, that start together.

Pods name theirs by the label `grove.io/podgang`, and their group by `grove.io/podclique`. A level
is a label of nodes, stated for the whole, for some groups together, or for one. Source: Grove's API
reference (scheduler.grove.io/v1alpha1).
"""

from collections.abc import Mapping
from typing import Any

from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.pods import mapping
from services.shim_adapter.translation.workloads.replicas import Gang, inner, items, text, whole
from shared.messages.interface import GangSettings, SubGroup, TopologyConstraint

PODGANG_LABEL, PODCLIQUE_LABEL = "grove.io/podgang", "grove.io/podclique"
MAX_GROUPS = 100  # groups of one PodGang; one with more is refused


def pod_gang(body: Mapping[str, Any], name: str) -> Gang:
    """Return the gang of a PodGang: all its groups, each with its minimum. Raises ManifestError."""
    spec = mapping(body.get("spec"), "spec")
    listed = items(spec, "podgroups")
    if not 1 <= len(listed) <= MAX_GROUPS:
        raise ManifestError("spec.podgroups", f"1 to {MAX_GROUPS} of them, found {len(listed)}")
    above: list[SubGroup] = []
    parents: dict[str, str] = {}
    for at, item in enumerate(items(spec, "topologyConstraintGroupConfigs")):
        where = f"spec.topologyConstraintGroupConfigs[{at}]"
        together = mapping(item, where)
        own = f"group {text(together, 'name', where) or at}"
        above.append(SubGroup(own, "", -1, is_group=True, topology=_topology(together, where)))
        parents |= {str(group): own for group in items(together, "podGroupNames", where)}
    groups = []
    for at, item in enumerate(listed):
        where = f"spec.podgroups[{at}]"
        group = mapping(item, where)
        own = text(group, "name", where)
        least = whole(group, "minReplicas", 1, where)
        part = SubGroup(own, parents.get(own, ""), least, topology=_topology(group, where))
        groups.append(part)
    terms = GangSettings((*above, *groups), -1, _topology(spec, "spec"))
    return Gang(name, 0, priority_class=text(spec, "priorityClassName"), terms=terms)


def _topology(part: Mapping[str, Any], where: str) -> TopologyConstraint:
    """Return the labels of which a part is to be on nodes with one value, or would be best."""
    stated = inner(part, "topologyConstraint", where)
    pack = inner(stated, "packConstraint", f"{where}.topologyConstraint")
    place = f"{where}.topologyConstraint.packConstraint"
    required, preferred = text(pack, "required", place), text(pack, "preferred", place)
    levels = tuple(dict.fromkeys(filter(None, (required, preferred))))
    return TopologyConstraint(levels, required, preferred if preferred != required else "")
