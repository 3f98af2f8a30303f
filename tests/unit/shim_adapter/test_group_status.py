"""The status of PodGroups: what stands there, when it is written, and when it is not."""

from services.shim_adapter.backends.kubernetes.group_status import (
    MAX_MESSAGE,
    GroupStatuses,
    Standing,
)
from services.shim_adapter.translation.workloads.pod_groups import (
    CORE,
    CORE_WORKLOAD,
    COSCHEDULING,
    KAI,
)
from tests.table import each_row

SECOND = 10**9
PATHS = {
    COSCHEDULING: "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    KAI: "/apis/scheduling.run.ai/v2alpha2/podgroups",
    CORE: "/apis/scheduling.k8s.io/v1alpha2/podgroups",
}


class Told:
    """A PodGroup ``g`` of a kind, and what is written of it."""

    def __init__(self, kind=COSCHEDULING, status=None, paths=PATHS):
        self.written = []
        self.now = 5 * SECOND
        self.stands = None
        self.name = kind, "ns", "g"
        self.statuses = GroupStatuses(
            self.written.append, lambda: f"t{self.now // SECOND}", lambda of: paths.get(of, "")
        )
        self.statuses.follow(lambda _: self.stands)
        self.statuses.see(self.name, "uid", status or {})

    def change(self, *stands, why=""):
        """Let the gang stand otherwise, and a second pass; return the statuses written since."""
        self.stands = Standing(*stands, why) if stands else None
        self.statuses.changed(self.name, self.now)
        return self.later()

    def later(self, seconds=1):
        self.now += seconds * SECOND
        self.statuses.advance(self.now)
        written, self.written[:] = [item.body["status"] for item in self.written], []
        return written


@each_row(
    ("stands", "phase"),
    [
        ((3, 2, 0, 0, 0), "Pending"),
        ((3, 3, 0, 0, 0), "Scheduling"),
        ((3, 4, 2, 2, 0), "Scheduling"),
        ((3, 3, 3, 2, 0), "Scheduled"),
        ((3, 5, 5, 3, 0), "Running"),
        ((3, 3, 3, 1, 2), "Running"),
        ((3, 3, 3, 0, 3), "Finished"),
        ((0, 1, 0, 0, 0), "Scheduling"),
    ],
)
def test_a_phase_goes_by_the_least_that_start_at_once(stands, phase):
    _, _, placed, running, done = stands
    assert Told().change(*stands) == [
        {"phase": phase, "scheduled": placed, "running": running, "succeeded": done}
    ]


def test_what_changes_is_written_once_a_second_as_it_is_then():
    told = Told()
    told.stands = Standing(2, 1, 0, 0, 0, "")
    told.statuses.changed(told.name, told.now)
    assert told.statuses.next_due_ns() == told.now + SECOND
    told.statuses.advance(told.now)
    assert told.written == []
    for running in range(3):
        told.stands = Standing(2, 2, 2, running, 0, "")
        told.statuses.changed(told.name, told.now)
    assert [status["running"] for status in told.later()] == [2]
    assert (told.statuses.next_due_ns(), told.later()) == (None, [])
    assert told.change(2, 2, 2, 2, 0) == []  # nothing is otherwise


def test_where_it_goes_and_to_whom():
    told = Told()
    told.stands = Standing(2, 1, 0, 0, 0, "")
    told.statuses.changed(told.name, told.now)
    told.statuses.advance(told.now + SECOND)
    (written,) = told.written
    assert written.path == "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups/g/status"
    assert written.body["metadata"] == {"uid": "uid"}  # its successor's is not written


def test_what_stands_there_already_is_not_written_again_by_the_next_of_us():
    there = {"phase": "Running", "scheduled": 2, "running": 2, "succeeded": 0, "occupiedBy": "x"}
    assert Told(status=there).change(2, 2, 2, 2, 0) == []
    pruned = {"phase": "Running", "running": 2, "succeeded": 0}
    assert len(Told(status=pruned).change(2, 2, 2, 2, 0)) == 1  # once; its schema has no count


def test_who_else_writes_is_not_written_against():
    told = Told()
    assert len(told.change(2, 2, 2, 2, 0)) == 1
    told.statuses.see(told.name, "uid", {"phase": "Unknown"})
    assert told.change(2, 2, 2, 2, 0) == []
    told.statuses.see(told.name, "another", {"phase": "Unknown"})  # made anew
    assert len(told.change(2, 2, 2, 2, 0)) == 1


def test_what_has_finished_stays_so_and_what_lost_its_pods_is_pending():
    told = Told()
    told.change(2, 2, 2, 0, 2)
    assert told.change() == []
    told = Told()
    told.change(2, 2, 2, 2, 0)
    assert [status["phase"] for status in told.change()] == ["Pending"]
    assert Told().change() == []  # it never had any


def test_a_core_pod_group_that_was_scheduled_stays_so():
    told = Told(CORE)
    (status,) = told.change(2, 1, 0, 0, 0, why="m" * 9_999)
    (condition,) = status["conditions"]
    assert condition | {"message": ""} == {
        "type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable",
        "message": "", "lastTransitionTime": "t6",
    }  # fmt: skip
    assert len(condition["message"]) == MAX_MESSAGE
    (status,) = told.change(2, 1, 0, 0, 0, why="other")
    assert status["conditions"][0]["lastTransitionTime"] == "t6"  # it is False since then
    (status,) = told.change(2, 2, 2, 0, 0)
    assert status["conditions"][0] == {
        "type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": "",
        "lastTransitionTime": "t8",
    }  # fmt: skip
    assert told.change(2, 2, 1, 0, 0, why="one is lost") == []
    told.statuses.see(told.name, "uid", status)
    assert told.change(2, 2, 1, 0, 0, why="one is lost") == []
    assert Told(CORE, status).change(2, 2, 0, 0, 0, why="after a restart") == []


def test_the_condition_of_core_goes_by_the_version_that_is_served():
    paths = {CORE: "/apis/scheduling.k8s.io/v1beta1/podgroups"}
    (status,) = Told(CORE, paths=paths).change(0, 1, 1, 0, 0)  # basic: one is enough
    assert status["conditions"][0]["type"] == "PodGroupInitiallyScheduled"


def test_kai_is_told_why_and_that_it_is_over():
    told = Told(KAI)
    (status,) = told.change(2, 1, 0, 0, 0, why="one is missing")
    (condition,) = status["schedulingConditions"]
    assert (condition["type"], condition["status"], condition["nodePool"]) == (
        "UnschedulableOnNodePool", "True", "default",
    )  # fmt: skip
    assert condition["reasons"] == [{"reason": "PodSchedulingErrors", "message": "one is missing"}]
    assert told.change(2, 1, 0, 0, 0, why="one is missing") == []
    assert told.change(2, 2, 2, 0, 0) == [{"schedulingConditions": []}]
    assert told.change(2, 2, 2, 2, 0) == []
    assert Told(KAI).change(2, 2, 2, 0, 0) == []  # it has never waited


def test_what_has_no_status_of_ours_is_left_alone():
    assert Told(CORE_WORKLOAD).change(2, 1, 0, 0, 0) == []
    assert Told(paths={}).change(2, 1, 0, 0, 0) == []
    told = Told()
    told.statuses.see(told.name, "uid", None)
    assert told.change(2, 1, 0, 0, 0) == []


def test_a_clock_that_was_set_back_keeps_nobody_waiting():
    told = Told()
    told.stands = Standing(2, 1, 0, 0, 0, "")
    told.statuses.changed(told.name, 9_000 * SECOND)
    assert len(told.later()) == 1


def test_a_group_of_kubernetes_that_is_evicted_says_so_until_it_is_scheduled_again():
    told = Told(CORE)
    told.change(2, 2, 2, 0, 0)

    def conditions(*stands, disrupted=""):
        told.stands = Standing(*stands, "", disrupted=disrupted)
        told.statuses.changed(told.name, told.now)
        return [
            {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
            for status in told.later()
        ]

    scheduled = {"PodGroupScheduled": ("True", "Scheduled")}
    is_so = {"DisruptionTarget": ("True", "PreemptionByScheduler")}
    assert conditions(2, 2, 1, 0, 0, disrupted="for x") == [scheduled | is_so]
    assert conditions(2, 1, 0, 0, 0, disrupted="for x") == []
    assert conditions(2, 2, 1, 0, 0) == []  # after a restart, which does not know for what
    over = {"DisruptionTarget": ("False", "PreemptionByScheduler")}
    assert conditions(2, 2, 2, 0, 0) == [scheduled | over]
    assert conditions(2, 2, 2, 0, 0) == []
