"""The cluster between reflectors and mirror: what is seen becomes news once, in any order."""

import json

import pytest

from services.shim_adapter.backends.kubernetes.claim_objects import claim_of, class_of
from services.shim_adapter.backends.kubernetes.cluster import KubernetesCluster
from services.shim_adapter.backends.kubernetes.failing import MAX_PAUSE_SECONDS
from services.shim_adapter.backends.kubernetes.objects import pod_view
from services.shim_adapter.backends.kubernetes.observed import (
    Bound,
    ClaimSeen,
    DeviceClaimSeen,
    DeviceClassSeen,
    NodeSeen,
    NotBound,
    PodDeleted,
    PodSeen,
    SliceSeen,
    VolumeSeen,
)
from services.shim_adapter.backends.kubernetes.volumes import Claim, Volume
from services.shim_adapter.mirror.calls import (
    BindPod,
    BindRefused,
    CreatePod,
    DeletePod,
    FailPod,
    MarkUnschedulable,
    PodAdded,
    PodBound,
    PodChanged,
    PodEnded,
    PodGone,
)
from services.shim_adapter.mirror.mirror import ClusterMirror
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import NodeRecord
from shared.messages.interface import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    UpdateResponse,
)
from tests.unit.shim_adapter.test_devices import halves
from tests.unit.shim_adapter.test_kubernetes_objects import READING, raw


class Session:
    def __init__(self):
        self.done = []
        self.cluster = KubernetesCluster(World(), operate=self.done.append, now_text=lambda: "t")
        self.world = self.cluster.world
        for name in ("n1", "n2"):
            self.world.nodes[name] = NodeRecord(name, {"vcore": 9000, "pods": 9})

    def see(self, *observed):
        for item in observed:
            self.cluster.report(item)
        return [type(news) for news in self.cluster.advance(1)]

    def pod(self, **more):
        return self.see(PodSeen(pod_view(raw(**more), READING, self.cluster.knows)))

    def member(self, name, placeholder="false", **more):
        body = raw(name, **more)
        body["metadata"]["annotations"] = {
            "yunikorn.apache.org/task-group-name": "g",
            "internal.yunikorn.apache.org/placeholder": placeholder,
        }
        return self.see(PodSeen(pod_view(body, READING, self.cluster.knows)))

    def status(self, phase, **more):
        body = raw(**more)
        body["status"]["phase"] = phase
        return self.see(PodSeen(pod_view(body, READING, self.cluster.knows)))

    def events(self):
        return [op.body["reason"] for op in self.done if op.body.get("kind") == "Event"]

    def whats(self):
        return [op.what for op in self.done if op.what != "note"]


@pytest.fixture
def session():
    made = Session()
    assert made.pod() == [PodAdded]
    made.cluster.carry_out(BindPod("uid-p", "n1"), 5)
    assert made.world.pods["uid-p"].node == "n1"
    return made


def test_a_bind_is_confirmed_once_by_the_answer_or_by_the_watch(session):
    assert session.see(Bound("uid-p")) == [PodBound]
    assert session.pod(node="n1") == []
    other = Session()
    other.pod()
    other.cluster.carry_out(BindPod("uid-p", "n1"), 5)
    assert other.pod(node="n1") == [PodBound]
    assert other.see(Bound("uid-p")) == []
    assert session.events() == other.events() == ["Scheduled"]


def test_what_the_watch_saw_before_the_bind_does_not_undo_it(session):
    assert session.pod() == []
    assert session.world.pods["uid-p"].node == "n1"


def test_a_bind_that_failed_takes_the_pod_off_the_node_unless_it_was_bound_after_all(session):
    assert session.see(NotBound("uid-p", "why")) == [BindRefused]
    assert session.world.on_nodes.of("n1") == []
    assert session.see(NotBound("uid-p", "again")) == []
    assert session.pod(node="n2") == [PodChanged, PodBound]


def test_a_pod_that_was_bound_elsewhere_is_given_back_and_counted_there(session):
    assert session.pod(node="n2") == [BindRefused, PodChanged, PodBound]
    assert [len(session.world.on_nodes.of(node)) for node in ("n1", "n2")] == [0, 1]
    assert session.see(Bound("uid-p")) == []


def test_a_pod_ends_once_and_its_deletion_is_no_news_then(session):
    session.see(Bound("uid-p"))
    assert session.status("Succeeded", node="n1") == [PodEnded]
    assert session.status("Succeeded", node="n1") == []
    assert session.see(PodDeleted("uid-p")) == []
    assert session.world.pods == {}


def test_a_pod_that_is_deleted_is_gone_with_what_was_decided_of_it(session):
    session.see(Bound("uid-p"))
    session.cluster.carry_out(DeletePod("uid-p", "PREEMPTED_BY_SCHEDULER", "for another"), 6)
    session.cluster.carry_out(DeletePod("uid-p", "PREEMPTED_BY_SCHEDULER", "for another"), 7)
    assert session.whats() == ["bind", "evict"]
    assert session.see(PodDeleted("uid-p")) == [PodGone]


def test_a_pod_that_waits_for_a_volume_is_seen_when_it_is_there_and_forgotten_when_it_goes():
    session = Session()
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    assert session.pod(volumes=volumes) == []
    assert session.pod(volumes=volumes) == []
    assert session.events() == ["FailedScheduling"]  # once
    assert session.see(ClaimSeen(("ns", "c"), Claim("pv", ""))) == []
    assert session.see(VolumeSeen("pv", Volume())) == [PodAdded]
    session.cluster.carry_out(BindPod("uid-p", "n1"), 5)
    assert session.pod(volumes=volumes, node="n1") == [PodBound]
    assert session.cluster.volumes.volumes.claimants == {("ns", "c"): {"uid-p": None}}
    session.status("Succeeded", volumes=volumes, node="n1")
    assert session.cluster.volumes.volumes.claimants == {}
    waiting = Session()
    waiting.pod(volumes=volumes)
    waiting.see(PodDeleted("uid-p"))
    assert waiting.cluster.volumes.volumes.claimants == {}
    assert waiting.see(ClaimSeen(("ns", "c"), Claim("pv", "")), VolumeSeen("pv", Volume())) == []


def test_a_pod_is_marked_for_autoscalers_once_and_not_again_by_the_next_session():
    session = Session()
    session.pod()
    for message in ("none of 2 nodes", "none of 3 nodes"):
        session.cluster.carry_out(MarkUnschedulable("uid-p", message), 5)
    marks = [op.body["status"] for op in session.done if "status" in op.body]
    assert [mark["conditions"][0]["message"] for mark in marks] == ["none of 2 nodes"]
    notes = [op.body["note"] for op in session.done if op.body.get("kind") == "Event"]
    text = "Task ns/p is pending for the requested resources become available"
    assert notes == [text, "none of 2 nodes"]
    assert session.events() == ["PodUnschedulable", "FailedScheduling"]
    later = Session()
    body = raw()
    body["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    ]
    later.see(PodSeen(pod_view(body, READING, later.cluster.knows)))
    later.cluster.carry_out(MarkUnschedulable("uid-p", "none of 2 nodes"), 5)
    assert later.done == []


def test_pods_of_a_rejected_application_that_come_again_and_again_are_failed_ever_later():
    """Their controller makes another one at once: what a queue that is not there would cost."""
    session = Session()

    def rejected(*names, why="ApplicationRejected"):
        for name in names:
            session.pod(name=name)
        session.done.clear()
        for name in names:
            session.cluster.carry_out(FailPod(f"uid-{name}", why, "no queue"), 5)
        return [op.pause for op in session.done if op.what == "fail"]

    assert rejected("a", "b", "c") == [0, 0, 0]
    assert rejected("d", "e") == [1, 1]
    assert [rejected(name) for name in "fghi"] == [[3], [7], [15], [31]]
    assert rejected("j", why="ResourceReservationTimeout") == [0]
    for at in range(20):
        (last,) = rejected(f"k{at}")
    assert last == MAX_PAUSE_SECONDS


def test_a_foreign_pod_is_news_once_it_has_a_node():
    session = Session()
    assert session.pod(scheduler="other") == []
    assert session.pod(scheduler="other", node="n1") == [PodAdded]
    assert session.status("Running", scheduler="other", node="n1") == []
    assert session.status("Failed", scheduler="other", node="n1") == [PodEnded]


@pytest.mark.parametrize("is_disabled", [True, False])
@pytest.mark.parametrize("comes_later", [True, False])
def test_without_gang_scheduling_no_application_reserves_whenever_it_comes(
    is_disabled, comes_later
):
    """docs/rules/configuration.md#service-keys, ``service.disableGangScheduling``: all pods go one by one."""
    session = Session()
    data = {"service.disableGangScheduling": str(is_disabled)}
    session.cluster.configuration.take("yunikorn-configs", data)
    session.cluster.configuration.begin()
    body = raw()
    group = {"name": "tg", "minMember": 7, "minResource": {"cpu": "1"}}
    body["metadata"]["annotations"] = {"yunikorn.apache.org/task-groups": json.dumps([group])}
    seen = PodSeen(pod_view(body, READING, session.cluster.knows))
    if comes_later:
        session.cluster.begin(1, 1)
        session.see(seen)
    else:
        session.see(seen)
        session.cluster.begin(1, 1)
    mirror = ClusterMirror(session.world, "rm")
    said = mirror.sync()
    if comes_later:
        _, said = mirror.on_news(PodAdded(session.world.pods["uid-p"]))
    (request,) = [new for item in said for new in getattr(item.message, "new_applications", ())]
    assert request.placeholder_ask == ({} if is_disabled else {"vcore": 7000, "pods": 7})
    accepted = UpdateResponse(accepted_applications=(AcceptedApplication("yunikorn-ns-autogen"),))
    calls, _ = mirror.on_response(accepted, session.world.epoch)
    assert len([call for call in calls if isinstance(call, CreatePod)]) == (0 if is_disabled else 7)


def test_a_pod_that_names_two_applications_is_warned_and_taken_with_the_first():
    """docs/rules/pods.md#its-queue; one that runs already is told nothing."""
    session = Session()
    for node in ("", "n1"):
        body = raw(f"p{node}", node=node)
        body["metadata"]["labels"] = {"applicationId": "a", "spark-app-selector": "b"}
        session.see(PodSeen(pod_view(body, READING, session.cluster.knows)))
    assert {pod.spec.application_id for pod in session.world.all_pods()} == {"a"}
    (event,) = [op.body for op in session.done if op.body.get("type") == "Warning"]
    assert event["note"] == (
        "Found multiple 'app-id' value in pod. "
        '{"labels[applicationId]": "a", "labels[spark-app-selector]": "b"}'
    )


class Gang(Session):
    """A gang of two that reserves: its real pods, the mirror, and what that asks for."""

    def __init__(self):
        super().__init__()
        group = {"name": "tg", "minMember": 2, "minResource": {"cpu": "1"}}
        annotations = {
            "yunikorn.apache.org/task-groups": json.dumps([group]),
            "yunikorn.apache.org/task-group-name": "tg",
        }
        for name in ("a", "b"):
            body = raw(name)
            body["metadata"] |= {"annotations": annotations, "labels": {"applicationId": "app"}}
            self.see(PodSeen(pod_view(body, READING, self.cluster.knows)))
        self.cluster.begin(1, 1)
        self.mirror = ClusterMirror(self.world, "rm")
        self.mirror.sync()
        self.made = 0
        self.decided(accepted_nodes=tuple(map(AcceptedNode, self.world.nodes)))
        self.decided(accepted_applications=(AcceptedApplication("app"),))

    def decided(self, **sections):
        """Carry out what the core decided; return what it is asked for then."""
        return self._follow(self.mirror.on_response(UpdateResponse(**sections), self.world.epoch))

    def seen(self, *observed):
        asked = []
        for item in observed:
            self.cluster.report(item)
        for news in self.cluster.advance(1):
            asked += self._follow(self.mirror.on_news(news))
        return asked

    def places(self, nodes):
        """Place pods by uid; their binds are on their way."""
        placed = (Allocation(uid, "app", node, {"vcore": 1000}) for uid, node in nodes.items())
        return self.decided(new_allocations=tuple(placed))

    def _follow(self, reaction):
        calls, said = reaction
        asked = [ask.allocation_key for item in said for ask in getattr(item.message, "asks", ())]
        for call in calls:
            self.cluster.carry_out(call, 1)
            if isinstance(call, CreatePod):
                self.made += 1
                body = self.done[-1].body
                body["metadata"] |= {"uid": f"place-{self.made}", "creationTimestamp": None}
                body["status"] = {"phase": "Pending"}
                asked += self.seen(PodSeen(pod_view(body, READING, self.cluster.knows)))
        return asked


def test_a_gang_has_no_place_on_a_node_that_has_gone_also_where_a_bind_comes_after_it():
    """The answer to the bind may come long before the pod is seen to go, with its node."""
    gang = Gang()
    gang.places({"place-1": "n1", "place-2": "n2"})
    assert gang.seen(NodeSeen(NodeRecord("n2", {}), is_gone=True)) == []
    assert gang.seen(Bound("place-2"), Bound("place-1")) == []
    assert gang.seen(PodDeleted("place-2")) == ["place-3"]
    gang.places({"place-3": "n1"})
    assert gang.seen(Bound("place-3")) == ["uid-a", "uid-b"]


def test_a_place_is_lost_with_its_node_and_had_again_with_it():
    gang = Gang()
    gang.places({"place-2": "n2"})
    node = gang.world.nodes["n2"]
    assert gang.seen(Bound("place-2"), NodeSeen(node, is_gone=True)) == []
    gang.places({"place-1": "n1"})
    assert gang.seen(Bound("place-1")) == []
    assert gang.seen(NodeSeen(node)) == ["uid-a", "uid-b"]


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_bind_that_is_on_its_way_at_a_recovery_is_no_place_yet(is_refused):
    gang = Gang()
    gang.places({"place-1": "n1", "place-2": "n1"})
    assert gang.seen(Bound("place-1")) == []
    gang.mirror.sync()
    assert gang.decided() == []
    outcome = NotBound("place-2", "why") if is_refused else Bound("place-2")
    assert gang.seen(outcome) == ([] if is_refused else ["uid-a", "uid-b"])


def given(session):
    """Return the devices of each pod that was bound."""
    return {
        op.pod.spec.name: [each.device[2] for claim in op.devices for each in claim.results]
        for op in session.done
        if op.what == "bind"
    }


@pytest.mark.parametrize("bound", ["once its placeholder has gone", "once all of them have gone"])
def test_a_pod_of_a_gang_leaves_what_the_others_need_of_a_device(bound):
    """Their places are had at once; placeholders go, and pods come, one by one."""
    session = Session()
    for name in ("whole", "half"):
        text = f'device.attributes["gpu"].part == "{name}"'
        kind = class_of({"spec": {"selectors": [{"cel": {"expression": text}}]}})
        session.see(DeviceClassSeen(name, kind))
    for number, seen in enumerate(halves()):
        session.see(SliceSeen(str(number), seen))
    alternatives = [{"name": name, "deviceClassName": name} for name in ("whole", "half")]
    requests = [{"name": "gpu", "firstAvailable": alternatives}]
    for name in ("first", "second"):
        body = {"metadata": {"uid": name}, "spec": {"devices": {"requests": requests}}}
        session.see(DeviceClaimSeen(("ns", name), claim_of(body)))
        session.member(name, resourceClaims=[{"name": "gpu", "resourceClaimName": name}])
    for name in ("tg-0", "tg-1"):
        session.member(name, "true", node="n1")
        session.cluster.carry_out(DeletePod(f"uid-{name}", "PLACEHOLDER_REPLACED"), 2)
    session.see(PodDeleted("uid-tg-0"))
    if bound == "once all of them have gone":
        session.see(PodDeleted("uid-tg-1"))
    session.cluster.carry_out(BindPod("uid-first", "n1"), 3)
    session.cluster.advance(3)
    assert given(session) == {"first": ["h0"]}
    session.see(PodDeleted("uid-tg-1"))
    session.cluster.carry_out(BindPod("uid-second", "n1"), 4)
    session.cluster.advance(4)
    assert given(session) == {"first": ["h0"], "second": ["h1"]}
