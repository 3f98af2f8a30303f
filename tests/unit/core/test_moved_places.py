"""The place that is kept for a pod that is moved stays one that it can take."""

import pytest

from services.core.scheduler.model.rows import WAIT_NS
from shared.messages.constraints import Constraints, HostPort, PodTerm, Requirement
from shared.messages.interface import (
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
)
from tests.builders import Core, config_of

GOES = TerminationType.PREEMPTED_BY_SCHEDULER
ONE = {"vcore": 1}
TAGS = {"kubernetes.io/meta/namespace": "d", "kubernetes.io/label/app": "x"}
ALIKE = PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("x",)),))
WISHES = [
    Constraints(host_ports=(HostPort(80),)),
    Constraints(pod_anti_affinity=(ALIKE,), namespace="d"),
]


class Moving(Core):
    """A pod on n1 that is moved to n2, which came later; others want the same of a node."""

    def __init__(self, wish: Constraints) -> None:
        super().__init__(config_of("{name: a}"))
        self.wish = wish
        for name in ("moved", "other"):
            self.application(name, "root.a")
        self.come("n1")
        self.ask("moved", "m")
        self.come("n2")
        partition, app = self.partition, self.partition.applications["moved"]
        partition.release(app, "m", GOES, "moved")
        partition.move(app, "m", partition.nodes.nodes["n2"])
        self.check()

    def come(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name}
        node = NodeInfo(name, NodeAction.CREATE, {"vcore": 4}, labels=labels)
        self.update(nodes=(node,))

    def ask(self, application: str, key: str) -> None:
        self.asks(application, [key], ONE, constraints=self.wish, allocation_tags=TAGS)
        self.check()

    def go(self) -> None:
        self.update(releases=(AllocationRelease("moved", "m", GOES),))
        self.check()

    def places(self) -> dict[str, str]:
        apps = self.partition.applications.values()
        return {key: held.node_id for app in apps for key, held in app.allocations.items()}


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("goes_first", [True, False])
def test_nobody_takes_what_would_keep_the_moved_pod_from_its_place(wish, goes_first):
    core = Moving(wish)
    core.ask("other", "o")
    assert core.places() == {"m": "n1"}
    if goes_first:
        core.go()
        assert core.places() == {"o": "n1"}
        core.ask("moved", "again")
    else:
        core.ask("moved", "again")
        core.go()
    assert core.places() == {"o": "n1", "again": "n2"}


@pytest.mark.parametrize("wish", WISHES)
def test_when_the_place_is_given_up_others_take_it(wish):
    core = Moving(wish)
    core.ask("other", "o")
    core.ask("other", "p")
    core.go()
    given_up_ns = core.now_ns + WAIT_NS
    while core.now_ns < given_up_ns:  # the asks are looked at in between
        assert core.places() == {"o": "n1"}
        core.fire_own("preemption")
        core.check()
    assert core.places() == {"o": "n1", "p": "n2"}


@pytest.mark.parametrize("wish", WISHES)
def test_who_came_in_the_stead_and_goes_keeps_nobody_away(wish):
    core = Moving(wish)
    core.ask("other", "o")
    core.go()
    core.ask("other", "p")
    core.ask("other", "q")
    core.come("n3")
    assert core.places() == {"o": "n1", "p": "n3"}
    core.ask("moved", "again")
    assert core.places() == {"o": "n1", "p": "n3", "again": "n2"}
    core.update(releases=(AllocationRelease("moved", "again", TerminationType.STOPPED_BY_RM),))
    core.check()
    assert core.places() == {"o": "n1", "p": "n3", "q": "n2"}


@pytest.mark.parametrize("wish", WISHES)
def test_a_node_that_goes_takes_the_place_along(wish):
    core = Moving(wish)
    core.come("n3")
    core.update(nodes=(NodeInfo("n2", NodeAction.DECOMISSION),))
    core.check()
    core.come("n2")
    core.ask("other", "o")
    core.ask("other", "p")
    assert core.places() == {"m": "n1", "o": "n2", "p": "n3"} or core.places() == {
        "m": "n1",
        "o": "n3",
        "p": "n2",
    }
