"""The head gang that must be in one domain: the nodes that are reserved for it are of one."""

from shared.messages.interface import AllocationRelease, TerminationType
from shared.model.names import RUN_SECONDS
from shared.model.units import seconds
from tests.builders import START_NS
from tests.domains import cluster, gang, near

LANE = (("gangAdmission", "cluster"), ("reservations", "gang"))


def full(runs, settings=LANE):
    """Return two racks of nodes of one place, with a pod on each that states how long it runs."""
    core = cluster([[[1] * len(rack) for rack in runs]], settings=settings)
    core.application("full")
    for r, rack in enumerate(runs):
        for n, run in enumerate(rack):
            tags = {RUN_SECONDS: str(run)}
            core.asks("full", [f"full-{r}-{n}"], {"vcore": 1}, allocation_tags=tags)
    pods = core.partition.applications["full"].allocations
    assert {f"full-{pod.node_id[2:]}" for pod in pods.values()} == set(pods)
    return core


def end(core, key, after):
    core.now_ns = START_NS + seconds(after)
    core.update(releases=(AllocationRelease("full", key, TerminationType.STOPPED_BY_RM),))
    core.check()


def held(core):
    return sorted(name for name, node in core.partition.nodes.nodes.items() if node.is_held)


def pods(core, name="gang"):
    return len(core.partition.applications[name].allocations)


def test_the_rack_that_is_free_soonest_is_reserved_and_not_the_nodes_that_are():
    core = full([[100, 400], [200, 300]])
    gang(core, "gang", ("w", 2, near(required="rack")))
    assert held(core) == ["0-1-0", "0-1-1"]
    assert core.partition.head_gang.start_ns == START_NS + seconds(300)
    end(core, "full-0-0", 100)
    gang(core, "small", ("w", 1, near(preferred="rack")))
    assert (pods(core, "small"), held(core)) == (1, ["0-1-0", "0-1-1"])
    end(core, "full-1-0", 200)
    end(core, "full-1-1", 300)
    assert (pods(core), held(core)) == (2, [])


def test_another_rack_is_reserved_when_it_is_free_sooner():
    core = full([[100, 400], [200, 300]])
    gang(core, "gang", ("w", 2, near(required="rack")))
    end(core, "full-0-1", 50)
    assert held(core) == ["0-0-0", "0-0-1"]
    end(core, "full-0-0", 60)
    assert (pods(core), held(core)) == (2, [])


def test_no_nodes_are_reserved_for_a_gang_that_no_rack_could_hold():
    core = full([[100, 400], [200, 300]])
    gang(core, "gang", ("w", 3, near(required="rack")))
    assert (core.partition.head_gang, held(core)) == (None, [])


def test_what_only_prefers_a_rack_has_the_nodes_that_are_free_soonest():
    core = full([[100, 400], [200, 300]])
    gang(core, "gang", ("w", 2, near(preferred="rack")))
    assert held(core) == ["0-0-0", "0-1-0"]
