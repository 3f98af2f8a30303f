"""Clusters of blocks, racks and hosts, and gangs that ask for a domain of them."""

from shared.messages.constraints import NO_CONSTRAINTS
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    GangSettings,
    NodeAction,
    NodeInfo,
    Slice,
    SubGroup,
    TopologyConstraint,
)
from shared.model.resources import add, multiply
from shared.model.sentences import text_of
from tests.builders import Core

ONE = {"vcore": 1}
LEVELS = (("topologyLevels", "block,rack,host=kubernetes.io/hostname"),)
HOST = "kubernetes.io/hostname"


def cluster(blocks, *, settings=(), config=""):
    """Return a core with blocks of racks of nodes with so many places each; named b-r-n."""
    core = Core(config, settings=LEVELS + tuple(settings))
    for b, racks in enumerate(blocks):
        for r, nodes in enumerate(racks):
            for n, places in enumerate(nodes):
                name = f"{b}-{r}-{n}"
                node(core, name, {"block": f"b{b}", "rack": f"r{r}", HOST: name}, places)
    return core


def node(core, name, labels, places):
    core.update(nodes=(NodeInfo(name, NodeAction.CREATE, {"vcore": places}, labels=labels),))


def near(**wish):
    slices = tuple(Slice(*each) for each in wish.pop("slices", ()))
    return TopologyConstraint(slices=slices, **wish)


def gang(
    core,
    name,
    *parts,
    above=None,
    constraints=NO_CONSTRAINTS,
    priority=0,
    tags=None,
    queue="root.default",
    **more,
):
    """Announce a gang: parts are (name, members, topology) and what each of them requests.

    ``above`` is the topology of all together; ``constraints``, ``priority`` and ``tags`` are those of
    every pod.
    """
    parts = [(*part, ONE) if len(part) == 3 else part for part in parts]
    layout = tuple(SubGroup(part, "", count, topology=wish) for part, count, wish, _ in parts)
    terms = GangSettings(layout=layout, topology=above or TopologyConstraint())
    wanted = {}
    asks = []
    for part, count, _, resource in parts:
        wanted = add(wanted, multiply(resource, count))
        keys = [f"{name}-{part}-{at}" for at in range(count)]
        asks += [
            AllocationAsk(
                key,
                name,
                resource,
                placeholder=True,
                task_group_name=part,
                constraints=constraints,
                priority=priority,
                allocation_tags=tags or {},
            )
            for key in keys
        ]
    request = AddApplicationRequest(name, queue, placeholder_ask=wanted, gang=terms, **more)
    return core.update(new_applications=(request,), asks=tuple(asks))


def counts(core, name="gang"):
    """Return how many pods of a gang are on each node, in the order of the nodes."""
    found = dict.fromkeys(sorted(core.partition.nodes.nodes), 0)
    for allocation in core.partition.applications[name].allocations.values():
        found[allocation.node_id] += 1
    return list(found.values())


def why(core, name="gang"):
    return text_of(core.partition.applications[name].refusal)
