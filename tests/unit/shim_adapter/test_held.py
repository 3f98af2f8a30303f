"""Pods that are held back and were never asked for: what is told of them, how often, and to whom."""

import time

import pytest

from services.api.why.held import is_one_of_many
from services.api.why.standing import standing, why, why_of_found
from services.cli.why import why_parts
from services.shim_adapter.backends.kubernetes import held as held_module
from services.shim_adapter.backends.kubernetes.cluster import KubernetesCluster
from services.shim_adapter.backends.kubernetes.held import MAX_MESSAGE, MOST_NAMED, HeldPods
from services.shim_adapter.backends.kubernetes.objects import pod_view
from services.shim_adapter.backends.kubernetes.observed import (
    ClaimSeen,
    NotCreated,
    PodDeleted,
    PodGroupSeen,
    PodSeen,
    VolumeSeen,
)
from services.shim_adapter.backends.kubernetes.volumes import Claim, Volume
from services.shim_adapter.machine import ShimMachine
from services.shim_adapter.mirror.world import World
from services.shim_adapter.translation.workloads.pod_groups import COSCHEDULING
from services.shim_adapter.translation.workloads.replicas import Gang
from shared.bus.codec import decode, encode
from shared.messages.envelope import SHIM_ADAPTER, Envelope
from shared.messages.find_pod import FindPod, PodFound
from shared.messages.protocol import SyncRequest, Tick
from shared.messages.state import SnapshotRequest
from shared.model.reasons import Reason
from tests.unit.api.following import System
from tests.unit.shim_adapter.test_kubernetes_objects import READING, raw

SECOND = 10**9
APP = ("default", "a")


def claim(name):
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}


CLAIM = claim("c")


class Whole:
    """What a shim adapter sees of a cluster, as far as a core and an API that follows it."""

    def __init__(self):
        self.now = 1_800_000_000 * SECOND
        self.count = 0
        self.told = []  # every time that something was told of an application
        self.start_shim()
        self.recover()

    def start_shim(self, *seen):
        """Start a shim adapter that finds this in the cluster before it may say anything."""
        self.cluster = KubernetesCluster(World(), operate=lambda _: None, now_text=lambda: "t")
        self.machine = ShimMachine(World(), self.cluster)
        self.machine.world = self.cluster.world
        self.machine.mirror.world = self.cluster.world
        for item in seen:
            self.cluster.report(item)
        self.cluster.advance(self.now)
        self.cluster.begin(1, self.now)

    def send(self, message, epoch=None):
        """Let the shim adapter handle a message, and the core what it says, until all is quiet."""
        self.count += 1
        wrapped = Envelope(
            f"m{self.count}", type(message).__name__, message, SHIM_ADAPTER, "t",
            epoch=self.machine.world.epoch if epoch is None else epoch,
        )  # fmt: skip
        for item in self.machine.handle(wrapped, self.now):
            self.told += getattr(item.message, "pods_held", ())
            if item.to.service == "core":
                sent = decode(type(item.message).__name__, encode(item.message))
                for response in self.system.send(sent, epoch=item.epoch):
                    self.send(response)

    def recover(self):
        """Let another core begin that knows nothing, and the API follow it."""
        epoch = self.machine.world.epoch
        self.system = System(epoch=epoch)
        self.send(SyncRequest("core"), epoch)

    def see(self, *seen):
        for item in seen:
            self.cluster.report(item)
        self.send(Tick())

    def pods(self, *names, **more):
        self.see(*(seen(name, **more) for name in names))

    def later(self, seconds=1):
        self.now += seconds * SECOND
        self.send(Tick())

    def find(self, name):
        """Ask the shim adapter for a pod, as the API does, and return what it says."""
        self.count += 1
        asked = Envelope(f"m{self.count}", "FindPod", FindPod(name), "api", "t", reply_to="api.x#1")
        (answer,) = self.machine.handle(asked, self.now)
        assert answer.reply_to == "api.x#1"
        return answer.message

    def why_pod(self, name):
        return why_of_found(self.system.model, self.find(name)).model_dump(by_alias=True)

    def why(self, name):
        found = why(self.system.model, name)
        return None if found is None else found.model_dump(by_alias=True)


def seen(name, app="a", annotations=None, **more):
    labels = {"applicationId": app, **more.pop("labels", {})}
    body = raw(name, **more)
    body["metadata"] |= {"labels": labels, "annotations": annotations or {}}
    return PodSeen(pod_view(body, READING, lambda _: False))


def waits(answer):
    return [(row["reason"], row["asks"], row["pods"]) for row in answer["waits"]]


# --- the whole path -----------------------------------------------------------------------------


def test_pods_whose_claims_wait_are_why_an_application_that_nobody_knows_waits():
    whole = Whole()
    whole.pods("p", "q", **CLAIM)
    answer = whole.why("a")
    assert answer["sentence"] == (
        'application a waits for its volumes: persistentvolumeclaim "c" not found.'
    )
    assert (answer["kind"], answer["verdict"], answer["applicationID"]) == (
        "application", "waiting", "a",
    )  # fmt: skip
    assert waits(answer) == [(Reason.VOLUMES, 2, ["p", "q"])]
    assert answer["waits"][0]["heldBack"]
    assert answer["since"] == 1_767_225_610 * SECOND  # when the first was made
    assert whole.why("q")["sentence"].startswith("pod q waits for its volumes: ")
    assert whole.why("uid-q")["name"] == "q"
    assert [standing(whole.system.model, name) for name in ("a", "q", "x")] == [4, 2, 0]


def test_who_is_asked_for_is_held_back_no_more():
    whole = Whole()
    whole.pods("p", **CLAIM)
    whole.later()
    whole.see(ClaimSeen(("ns", "c"), Claim("pv", "")), volume())
    assert whole.why("a")["sentence"] == (
        "application a waits: there is no node with any capacity."
    )
    assert waits(whole.why("a")) == [("NO_NODES", 1, ["uid-p"])]
    assert whole.system.model.pods_held == whole.system.partition.pods_held == {}


def volume():
    return VolumeSeen("pv", Volume())


def test_what_a_known_application_asks_for_and_what_is_held_back_stand_side_by_side():
    whole = Whole()
    whole.pods("p")
    whole.pods("q", "r", **CLAIM)
    answer = whole.why("a")
    assert waits(answer) == [(Reason.VOLUMES, 2, ["q", "r"]), ("NO_NODES", 1, ["uid-p"])]
    assert [row["heldBack"] for row in answer["waits"]] == [True, False]
    assert answer["queueName"] == "root.ns"


def test_gates_are_named_until_they_are_removed():
    whole = Whole()
    gates = [{"name": "example.com/one"}, {"name": "example.com/two"}]
    whole.pods("p", schedulingGates=gates)
    assert whole.why("a")["sentence"] == (
        "application a waits for its scheduling gates: example.com/one, example.com/two."
    )
    whole.later()
    whole.pods("p", schedulingGates=gates[1:])
    assert whole.why("p")["sentence"] == ("pod p waits for its scheduling gates: example.com/two.")
    whole.later()
    whole.pods("p")
    assert waits(whole.why("a")) == [("NO_NODES", 1, ["uid-p"])]


def test_a_pod_that_waits_for_its_claim_says_so_under_the_application_that_it_names():
    whole = Whole()
    whole.pods("p", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    assert whole.why("a")["sentence"].startswith(
        "application a waits for its devices: claim gpu: no ResourceClaim is made of t yet"
    )
    assert whole.why("a")["reason"] == Reason.DEVICES
    whole.later()
    whole.see(PodDeleted("uid-p"))
    assert whole.why("a") is None


def member(name, **more):
    return seen(name, labels={"scheduling.x-k8s.io/pod-group": "g"}, **more)


def group(minimum):
    return PodGroupSeen((COSCHEDULING, "ns", "g"), {"": Gang("g", minimum)})


def test_pods_wait_for_their_pod_group_and_then_for_as_many_as_it_says():
    whole = Whole()
    whole.see(member("p"), member("q"))
    assert whole.why("a") is None  # it is made pod by pod: for a moment nothing is wrong
    whole.later(5)
    kind = "PodGroup ns/g (scheduling.x-k8s.io)"
    assert whole.why("a")["reason"] == Reason.POD_GROUP
    assert whole.why("a")["sentence"].endswith("g is not there.")
    whole.see(group(3))
    whole.later()
    sentence = whole.why("a")["sentence"]
    assert sentence.endswith("g: 3 pods must start together, and some do not exist yet.")
    assert waits(whole.why("a")) == [(Reason.POD_GROUP, 2, ["p", "q"])], kind
    whole.see(member("r"))
    whole.later()
    assert whole.system.model.pods_held == {}
    assert whole.system.model.application("a") is not None


def test_gated_members_and_such_with_volumes_say_that_first():
    whole = Whole()
    whole.see(group(2), member("p", schedulingGates=[{"name": "g"}]), member("q", **CLAIM))
    assert waits(whole.why("a")) == [
        (Reason.SCHEDULING_GATED, 1, ["p"]), (Reason.VOLUMES, 1, ["q"]),
    ]  # fmt: skip
    whole.later()
    whole.see(ClaimSeen(("ns", "c"), Claim("pv", "")), volume(), member("q", **CLAIM))
    whole.later(6)
    assert waits(whole.why("a")) == [
        (Reason.SCHEDULING_GATED, 1, ["p"]), (Reason.POD_GROUP, 1, ["q"]),
    ]  # fmt: skip
    whole.later()
    whole.see(member("q", **CLAIM))  # its own condition was written: it is seen again
    assert (Reason.POD_GROUP, 1, ["q"]) in waits(whole.why("a"))


def test_a_gang_whose_placeholders_are_refused_says_what_refused_them():
    whole = Whole()
    whole.see(group(2), member("p"), member("q"))
    assert len(whole.cluster.world.pods) == 2
    whole.see(NotCreated("a", "exceeded quota: few, used: pods=2"))
    whole.later()
    assert whole.why("a")["sentence"].endswith(
        "is tried again later as a whole: exceeded quota: few, used: pods=2."
    )
    assert waits(whole.why("a"))[0] == (Reason.POD_GROUP, 2, ["p", "q"])


def test_a_gang_of_no_pod_group_whose_placeholders_are_refused_is_named_in_why():
    whole = Whole()
    annotations = {
        "yunikorn.apache.org/task-group-name": "g",
        "yunikorn.apache.org/task-groups": '[{"name": "g", "minMember": 2, "minResource": '
        '{"cpu": "1"}}]',
    }
    whole.pods("p", "q", annotations=annotations)
    assert whole.why("a")["mismatches"] == []
    whole.see(NotCreated("a", "exceeded quota: few, used: pods=2"))
    said = [{
        "reason": "PlaceholderCreateFailed",
        "message": "its placeholders were refused, so it continues without gang scheduling, and its pods "
        "are scheduled one by one: exceeded quota: few, used: pods=2",
    }]  # fmt: skip
    assert whole.why("a")["mismatches"] == whole.why("q")["mismatches"] == said
    assert waits(whole.why("a")) == [("NO_NODES", 2, ["uid-p", "uid-q"])]
    whole.recover()
    assert whole.why("a")["mismatches"] == said
    lines = [str(part) for part in why_parts(whole.why("a"), lambda *_: "")]
    assert "its placeholders were refused" in lines[0]


def test_any_pod_that_is_held_back_says_why_however_many_are():
    whole = Whole()
    whole.see(*(seen(f"p{at}", **claim(f"c{at}")) for at in range(MOST_NAMED + 5)))
    last = f"p{MOST_NAMED + 4}"
    assert whole.why(last) is None  # of so many the API has the first
    for name in (last, f"uid-{last}"):
        told = whole.why_pod(name)
        assert told["sentence"] == (
            f'pod {last} waits for its volumes: persistentvolumeclaim "c{MOST_NAMED + 4}" not '
            "found. It is one of 25 pods of application a are held back for VOLUMES."
        )
        assert (told["kind"], told["name"], told["reason"], told["applicationID"]) == (
            "pod", last, Reason.VOLUMES, "a",
        )  # fmt: skip
        assert waits(told) == [(Reason.VOLUMES, 25, [last])]
    assert whole.why_pod("p3")["sentence"].count('"c3" not found') == 1  # its own, not the first's
    assert is_one_of_many(why(whole.system.model, "p3"))
    assert not is_one_of_many(why(whole.system.model, "a"))
    whole.see(*(PodDeleted(f"uid-p{at}") for at in range(MOST_NAMED + 4)))
    assert whole.why_pod(last)["sentence"].endswith("not found.")  # it alone
    whole.see(PodDeleted(f"uid-{last}"))
    assert whole.find(last) == PodFound()


def test_a_pod_whose_gang_reserves_is_found_and_a_foreign_one_is_not():
    whole = Whole()
    annotations = {
        "yunikorn.apache.org/task-group-name": "g",
        "yunikorn.apache.org/task-groups": '[{"name": "g", "minMember": 2, "minResource": '
        '{"cpu": "1"}}]',
    }
    whole.pods("p", annotations=annotations)
    assert whole.find("p") == whole.find("uid-p") == PodFound("a", "default", "p")
    assert whole.why_pod("p")["sentence"].startswith(
        "pod p has not been requested yet: application a "
    )
    whole.pods("f", schedulerName="default-scheduler", node="n1")
    assert "uid-f" in whole.cluster.world.pods
    assert whole.find("f") == whole.find("uid-f") == whole.find("nobody") == PodFound()


# --- again --------------------------------------------------------------------------------------


def test_a_core_that_recovers_is_told_again():
    whole = Whole()
    whole.pods("p", **CLAIM)
    whole.recover()
    assert waits(whole.why("a")) == [(Reason.VOLUMES, 1, ["p"])]


def test_the_next_shim_adapter_finds_the_same_before_it_may_say_anything():
    whole = Whole()
    whole.pods("p", **CLAIM)
    whole.start_shim(seen("p", **CLAIM), seen("q", **CLAIM))
    whole.send(Tick())  # it says everything unasked, in a new epoch
    assert waits(whole.why("a")) == [(Reason.VOLUMES, 2, ["p", "q"])]
    whole.start_shim()
    whole.send(Tick())  # it says everything unasked, in a new epoch
    assert whole.why("a") is None  # they went while nobody looked


def test_the_same_again_is_told_nobody():
    whole = Whole()
    whole.pods("p", **CLAIM)
    told = whole.told[-1]
    whole.later()
    whole.pods("p", **CLAIM)
    assert whole.told == [told]
    requests = [item.message for item in whole.system.answers]
    whole.system.update(pods_held=(told,))
    assert whole.system.model.pods_held == {"a": told}
    assert len(whole.system.answers) <= len(requests) + 1


def test_a_snapshot_has_what_is_held_back():
    whole = Whole()
    whole.pods("p", **CLAIM)
    whole.system.projection.model.pods_held.clear()
    whole.system.projection._is_in_doubt = True
    whole.system.send(SnapshotRequest("one"), epoch=whole.machine.world.epoch)
    assert waits(whole.why("a")) == [(Reason.VOLUMES, 1, ["p"])]


# --- how much is told ---------------------------------------------------------------------------


def of(pods, name, reason=Reason.VOLUMES, message="m", since=7):
    pods.hold(f"uid-{name}", APP, name, (reason, message), since)


def rows(news):
    return [(item.reason, item.message, item.pods) for item in news[0].told.held]


def test_an_application_is_told_of_at_most_once_a_second_with_all_that_came_meanwhile():
    pods = HeldPods()
    assert (pods.next_due_ns(), pods.advance(0)) == (None, [])
    of(pods, "p")
    assert pods.next_due_ns() == 0
    assert rows(pods.advance(10)) == [("VOLUMES", "m", 1)]
    of(pods, "q")
    of(pods, "r")
    assert pods.advance(SECOND) == []
    assert pods.next_due_ns() == SECOND + 10
    assert rows(pods.advance(SECOND + 10)) == [("VOLUMES", "m", 3)]
    assert pods.next_due_ns() is None
    assert pods.advance(9 * SECOND) == []
    for name in "pqr":
        pods.free(f"uid-{name}")
        pods.free(f"uid-{name}")
    (news,) = pods.advance(9 * SECOND)
    assert news.told.held == ()
    assert pods.advance(20 * SECOND) == []
    assert [item for item in vars(pods).values() if item] == []


def test_a_clock_that_was_set_back_keeps_nobody_waiting():
    pods = HeldPods()
    of(pods, "p")
    pods.advance(9 * SECOND)
    of(pods, "q")
    assert rows(pods.advance(SECOND)) == [("VOLUMES", "m", 2)]


def test_many_pods_are_a_number_and_the_first_names():
    pods = HeldPods()
    for at in range(1_000):
        of(pods, f"p{at}", message=f'claim "c{at}" not found', since=at + 1)
    of(pods, "gated", Reason.SCHEDULING_GATED, "x" * 9_999)
    (news,) = pods.advance(1)
    many, one = news.told.held
    assert (many.pods, len(many.keys), many.since_ns) == (1_000, MOST_NAMED, 1)
    assert many.message == 'claim "c0" not found (999 of 1000 pods say something else)'
    assert (many.keys[0], many.names[0]) == ("uid-p0", "p0")
    assert (one.pods, len(one.message)) == (1, MAX_MESSAGE)


def test_a_pod_that_waits_for_something_else_now_is_counted_there():
    pods = HeldPods()
    of(pods, "p")
    of(pods, "p", message="n")
    assert rows(pods.advance(1)) == [("VOLUMES", "n", 1)]
    of(pods, "p", Reason.SCHEDULING_GATED)
    assert rows(pods.advance(2 * SECOND)) == [("SCHEDULING_GATED", "m", 1)]
    pods.free("uid-p", but=Reason.SCHEDULING_GATED)
    assert pods.advance(4 * SECOND) == []


def test_what_a_pod_costs_does_not_grow_with_those_that_are_held(monkeypatch):
    monkeypatch.setattr(held_module, "TELL_SECONDS", 0)

    def cost(held):
        pods = HeldPods()
        for at in range(held):
            of(pods, f"p{at}", message=f"m{at}")
        pods.advance(1)
        start = time.process_time()
        for at in range(2_000):
            of(pods, f"q{at}", message=f"n{at}")
            pods.advance(2 + at)
        return time.process_time() - start

    assert min(cost(20_000) for _ in range(3)) < 4 * min(cost(200) for _ in range(3))


@pytest.mark.parametrize("junk", [{"labels": 7}, {"annotations": ["x"]}, {"labels": {"a": 1}}])
def test_a_pod_of_any_kind_of_junk_has_an_application(junk):
    body = raw("p", tolerations=[{"operator": "Like"}])
    body["metadata"] |= junk
    view = pod_view(body, READING, lambda _: False)
    assert view.error
    assert view.application in (None, ("default", "yunikorn-ns-autogen"))


def test_the_first_request_says_nothing_of_it_where_nobody_is_held_back():
    whole = Whole()
    whole.recover()
    assert whole.told == []
