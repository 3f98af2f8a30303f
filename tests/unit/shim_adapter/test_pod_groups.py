"""PodGroups: which one a pod names, what its gang is, and who waits for whom."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from services.shim_adapter.backends.kubernetes import gang_of_group, pod_groups
from services.shim_adapter.backends.kubernetes.cluster import KubernetesCluster
from services.shim_adapter.backends.kubernetes.gang_of_group import (
    LABELS,
    application_of,
    shape_of,
    task_groups_text,
    worn_labels,
)
from services.shim_adapter.backends.kubernetes.objects import pod_view
from services.shim_adapter.backends.kubernetes.observed import (
    EvictionRefused,
    NotCreated,
    PodDeleted,
    PodGroupSeen,
    PodSeen,
)
from services.shim_adapter.backends.kubernetes.sources import gangs_of
from services.shim_adapter.mirror.calls import (
    BindPod,
    DeletePod,
    FailPod,
    PodAdded,
    PodGone,
    PodsHeldBack,
)
from services.shim_adapter.translation.placeholders import placeholder_name
from services.shim_adapter.translation.task_groups import (
    TaskGroupsError,
    parse_policy_parameters,
    task_groups_of,
)
from services.shim_adapter.translation.workloads.pod_groups import (
    CORE,
    CORE_WORKLOAD,
    COSCHEDULING,
    KAI,
    POD_GROUP,
    GroupRef,
    group_of,
)
from services.shim_adapter.translation.workloads.replicas import Gang
from shared.messages.interface import TerminationType
from tests.kubernetes.store import _NAME
from tests.table import each_row
from tests.unit.shim_adapter.test_kubernetes_cluster import Session
from tests.unit.shim_adapter.test_kubernetes_objects import READING, raw

LABEL = "scheduling.x-k8s.io/pod-group"


@each_row(
    ("metadata", "spec", "wanted"),
    [
        ({"labels": {LABEL: "g"}}, {}, GroupRef(COSCHEDULING, "ns", "g")),
        ({"annotations": {"pod-group-name": "k"}}, {}, GroupRef(KAI, "ns", "k")),
        ({}, {"schedulingGroup": {"podGroupName": "c"}}, GroupRef(CORE, "ns", "c")),
        (
            {},
            {"workloadRef": {"name": "w", "podGroup": "p", "podGroupReplicaKey": "0"}},
            GroupRef(CORE_WORKLOAD, "ns", "w", "p", "0"),
        ),
        (
            {"labels": {LABEL: "g"}},
            {"schedulingGroup": {"podGroupName": "c"}},
            GroupRef(CORE, "ns", "c"),
        ),
        ({"labels": {LABEL: "g"}, "annotations": {"yunikorn.apache.org/task-groups": "[]"}}, {}, None),
        (
            {"labels": {LABEL: "g"}, "annotations": {"yunikorn.apache.org/task-group-name": "a"}},
            {},
            None,
        ),
        ({}, {}, None),
        ({"labels": 7, "annotations": "x"}, {"schedulingGroup": [], "workloadRef": "w"}, None),
    ],
)  # fmt: skip
def test_which_group_a_pod_names(metadata, spec, wanted):
    assert group_of({"namespace": "ns", **metadata}, spec) == wanted


@each_row(
    ("kind", "spec", "wanted"),
    [
        (COSCHEDULING, {"minMember": 3, "scheduleTimeoutSeconds": 90, "minResources": {"cpu": 3}}, (3, "", 90, True)),
        (COSCHEDULING, {}, (1, "", 0, True)),
        (KAI, {"minMember": 2, "queue": "root.k", "preemptibility": "non-preemptible"}, (2, "root.k", 0, False)),
        (CORE, {"schedulingPolicy": {"gang": {"minCount": 4}}}, (4, "", 0, True)),
        (CORE, {"schedulingPolicy": {"basic": {}}}, (0, "", 0, True)),
        (CORE, {"schedulingPolicy": {"basic": {}}, "disruptionMode": "PodGroup"}, (0, "", 0, False)),
        (CORE, {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}, (0, "", 0, False)),
        (CORE, {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"single": {}}}, (0, "", 0, True)),
    ],
)  # fmt: skip
def test_what_a_group_says(kind, spec, wanted):
    (gang,) = gangs_of(kind, {"metadata": {"name": "g"}, "spec": spec}).values()
    assert (gang.minimum, gang.queue, gang.timeout_seconds, gang.is_preemptible) == wanted


def test_a_queue_may_stand_in_a_label_of_the_group():
    metadata = {"name": "g", "labels": {"kai.scheduler/queue": "root.b"}}
    assert gangs_of(COSCHEDULING, {"metadata": metadata, "spec": {}})[""].queue == "root.b"


@pytest.mark.parametrize("key", ["schedulingConstraints.x"])
def test_what_core_kubernetes_asks_for_and_is_not_heeded_refuses_the_group(key):
    spec = {"schedulingPolicy": {"basic": {}}, key.split(".")[0]: {"x": 1}}
    assert gangs_of(CORE, {"metadata": {"name": "g"}, "spec": spec}) == f"spec.{key}: not supported"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([
                "minMember", "subGroups", "schedulingPolicy", "gang", "minCount", "disruptionMode",
                "podGroups", "policy", "name", "labels", "scheduleTimeoutSeconds",
            ]),
            inner,
            max_size=4,
        )
    ),
)  # fmt: skip


@given(st.sampled_from([COSCHEDULING, KAI, CORE, CORE_WORKLOAD]), JSON, JSON)
def test_a_group_of_any_kind_of_junk_is_read_or_refused(kind, spec, labels):
    found = gangs_of(kind, {"metadata": {"name": "g", "labels": labels}, "spec": spec})
    assert isinstance(found, str) or all(isinstance(gang, Gang) for gang in found.values())


# --- names and shapes ---------------------------------------------------------------------------

LABEL_TEXT = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
NAME_TEXT = st.lists(LABEL_TEXT, min_size=1, max_size=3).map(".".join) | st.just("x" * 250)
REFS = st.builds(
    GroupRef,
    st.sampled_from([COSCHEDULING, KAI]),
    LABEL_TEXT,
    NAME_TEXT,
    st.sampled_from(["", "a", "a-b"]),
    st.sampled_from(["", "0", "b-0"]),
)


@given(REFS, REFS)
@example(GroupRef(KAI, "a", "b-podgroup-c"), GroupRef(KAI, "a-podgroup-b", "c"))
@example(GroupRef(KAI, "n", "a.b"), GroupRef(KAI, "n", "a-b"))
@example(GroupRef(KAI, "n", "w", "a", "b-0"), GroupRef(KAI, "n", "w", "a-b", "0"))
def test_two_groups_have_two_applications_and_their_placeholders_names_hold(one, other):
    first, second = application_of(one), application_of(other)
    same_name = (one.namespace, one.name, one.part, one.replica) == (
        other.namespace, other.name, other.part, other.replica,
    )  # fmt: skip
    assert (first == second) <= same_name  # of two kinds with one name: told apart when they form
    assert len(first) <= 63
    assert _NAME.fullmatch(placeholder_name(first, "pods", "x"))


def view(name="p", *, labels=None, created=0, **more):
    body = raw(name, **more)
    body["metadata"]["labels"] = {LABEL: "g", **(labels or {})}
    body["metadata"]["creationTimestamp"] = f"2026-01-01T00:{created // 60:02}:{created % 60:02}Z"
    return pod_view(body, READING, lambda uid: False)


def test_pods_differ_in_shape_by_what_they_ask_for_and_not_by_labels_nobody_asks_about():
    ref = view().group

    def shape(**more):
        seen = view(**more)
        return shape_of(seen.spec, seen.where, seen.subgroup, ref)

    assert shape() == shape(labels={"batch.kubernetes.io/job-completion-index": "3"})
    assert shape() != shape(nodeSelector={"zone": "a"})
    assert shape() != shape(labels={"kai.scheduler/subgroup-name": "s"})
    term = {"labelSelector": {"matchLabels": {"role": "w"}}, "topologyKey": "zone"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    worn = json.loads(shape(labels={"role": "w", "x": "y"}, affinity=apart))["annotations"]
    assert json.loads(worn[LABELS]) == {"role": "w"}
    assert worn_labels({"own": "1"}, worn) == {"own": "1", "role": "w"}
    assert worn_labels({"own": "1"}, {LABELS: "no json"}) == {"own": "1"}
    for is_placeholder in (True, False):
        body = raw()
        body["metadata"]["annotations"] = {
            LABELS: '{"role": "w"}',
            "internal.yunikorn.apache.org/placeholder": str(is_placeholder).lower(),
            "yunikorn.apache.org/task-group-name": "pods",
        }
        spec = pod_view(body, READING, lambda uid: False).spec
        assert ("role" in spec.labels) is is_placeholder


def test_task_groups_have_names_of_their_own_and_are_bounded(monkeypatch):
    seen = [view(), view(nodeSelector={"zone": "a"})]
    shapes = {shape_of(v.spec, v.where, "", v.group): 2 for v in seen}
    groups = task_groups_of(task_groups_text(shapes, dict.fromkeys(shapes, "Work.er")))
    assert [(group.name, group.min_member) for group in groups] == [("ork-er", 2), ("ork-er-2", 2)]
    assert groups[1].constraints.node_selector == (("zone", "a"),)
    monkeypatch.setattr(gang_of_group, "MAX_SHAPES", 1)
    with pytest.raises(TaskGroupsError, match="2 different things, at most 1"):
        task_groups_text(shapes, dict.fromkeys(shapes, ""))
    monkeypatch.setattr(gang_of_group, "MAX_SHAPES", 2)
    monkeypatch.setattr(gang_of_group, "MAX_SHAPES_CHARACTERS", 10)
    with pytest.raises(TaskGroupsError, match="at most 10"):
        task_groups_text(shapes, dict.fromkeys(shapes, ""))


# --- who waits for whom -------------------------------------------------------------------------


class Grouped(Session):
    """A cluster whose turn has begun, with a group ``g`` of a minimum."""

    def __init__(self, minimum=2, **gang):
        super().__init__()
        self.now = 10**9
        self.cluster.begin(1, self.now)
        self.group(minimum, **gang)

    def hear(self, *observed):
        for item in observed:
            self.cluster.report(item)
        news = self.cluster.advance(self.now)
        return [item for item in news if not isinstance(item, PodsHeldBack)]  # test_held.py

    def group(self, minimum, **gang):
        gangs = None if minimum is None else {"": Gang("g", minimum, **gang)}
        return self.hear(PodGroupSeen((COSCHEDULING, "ns", "g"), gangs))

    def pod(self, name, **more):
        return self.hear(PodSeen(view(name, **more)))

    def ended(self, name, phase):
        seen = view(name)
        body = raw(name)
        body["metadata"]["labels"] = {LABEL: "g"}
        body["status"]["phase"] = phase
        seen = pod_view(body, READING, self.cluster.knows)
        return self.hear(PodSeen(seen))

    @property
    def let_go(self):
        return [pod.spec.name for pod in self.world.all_pods()]


def kinds(news):
    return [type(item) for item in news]


def test_who_comes_last_lets_all_go_as_members_of_one_gang():
    session = Grouped(3)
    assert session.pod("a", created=1) + session.pod("b", created=2) == []
    assert kinds(session.pod("c", created=3)) == [PodAdded] * 3
    specs = [pod.spec for pod in session.world.all_pods()]
    assert {spec.application_id for spec in specs} == {"ns-podgroup-g"}
    assert {(spec.style, spec.task_group_name) for spec in specs} == {("Hard", "pods")}
    assert [group.min_member for group in specs[0].task_groups] == [3]
    assert session.pod("a", created=1) == []


def test_pods_that_are_too_different_cost_no_look_at_all_of_them_for_each_that_is_seen(monkeypatch):
    looks = []
    monkeypatch.setattr(pod_groups, "shape_of", lambda *of: looks.append(of) or shape_of(*of))
    monkeypatch.setattr(gang_of_group, "MAX_SHAPES", 1)
    session = Grouped(3)
    for at in range(50):
        assert session.pod(f"p{at}", created=at, nodeSelector={"zone": str(at)}) == []
    assert len(looks) == 3  # the first three, once they are there
    assert session.group(2) == []
    assert len(looks) == 5
    session.now += pod_groups.RETRY_SECONDS * 10**9
    assert session.hear() == []
    assert len(looks) == 7
    *_, told = [
        note.body["status"]["conditions"][0]["message"]
        for note in session.done
        if "status" in note.body
    ]
    assert told.endswith("its pods ask for 2 different things, at most 1 are reserved")
    monkeypatch.setattr(gang_of_group, "MAX_SHAPES", 2)
    session.now += pod_groups.RETRY_SECONDS * 10**9
    assert len(session.hear()) == 50


def test_nothing_is_let_go_before_the_turn_begins():
    session = Session()
    session.see(PodGroupSeen((COSCHEDULING, "ns", "g"), {"": Gang("g", 1)}))
    assert session.see(PodSeen(view("a"))) == []
    session.cluster.begin(1, 1)
    assert [pod.spec.name for pod in session.world.all_pods()] == ["a"]
    assert "ns-podgroup-g" in session.world.applications


def test_the_oldest_are_reserved_for_when_there_are_more_than_the_minimum():
    session = Grouped(None)
    session.pod("young", created=9, nodeSelector={"zone": "b"})
    session.pod("old", created=1, nodeSelector={"zone": "a"})
    session.pod("older", created=0, nodeSelector={"zone": "a"})
    session.group(2)
    (young,) = [pod for pod in session.world.all_pods() if pod.spec.name == "young"]
    assert [(g.min_member, g.constraints.node_selector) for g in young.spec.task_groups] == [
        (2, (("zone", "a"),))
    ]
    assert young.spec.task_group_name == ""


def test_who_succeeded_counts_and_who_failed_or_is_gated_does_not():
    session = Grouped(3)
    session.ended("done", "Succeeded")
    session.ended("failed", "Failed")
    session.pod("gated", schedulingGates=[{"name": "x"}])
    assert session.pod("a") == []
    assert kinds(session.pod("b")) == [PodAdded] * 2
    (spec, _) = [pod.spec for pod in session.world.all_pods()]
    assert [group.min_member for group in spec.task_groups] == [2]
    assert kinds(session.pod("gated")) == [PodAdded]


def test_a_group_that_is_as_it_was_is_not_looked_at_again():
    session = Grouped(3)
    session.pod("a")
    before = len(session.cluster.groups._due)
    session.group(3)
    assert len(session.cluster.groups._due) == before


def test_a_pod_says_its_own_queue_and_class_and_its_group_what_it_does_not():
    session = Grouped(1, queue="root.g", priority_class="low")
    session.cluster.groups._classes = READING.classes
    session.pod("a")
    session.pod("b", labels={"queue": "root.own"}, priorityClassName="other", priority=9)
    session.pod("c", labels={"kai.scheduler/queue": "root.k"})
    found = [
        (p.spec.queue_name, p.spec.priority_class, p.spec.priority, p.spec.allow_preempt_self)
        for p in session.world.all_pods()
    ]
    assert found == [
        ("root.g", "low", 3, False),
        ("root.own", "other", 9, True),
        ("root.k", "low", 3, False),
    ]


def test_a_gang_without_places_goes_back_and_comes_again_after_a_pause_that_grows():
    session = Grouped(2)
    session.pod("a")
    session.pod("b")
    for pause in (10, 20, 40):
        news = [
            news
            for pod in list(session.world.all_pods())
            for news in session.cluster.carry_out(
                FailPod(pod.uid, "ResourceReservationTimeout", "why"), session.now
            )
        ]
        assert kinds(news) == [PodGone] * 2
        assert session.let_go == []
        assert session.pod("a") == []  # whatever is seen of it meanwhile
        session.now += pause * 10**9 - 1
        assert session.hear() == []
        session.now += 1
        assert session.cluster.next_due_ns() <= session.now
        assert kinds(session.hear()) == [PodAdded] * 2
    assert "fail" not in session.whats()


def test_a_gang_whose_placeholders_are_refused_goes_back_and_any_other_is_given_up():
    session = Grouped(2)
    session.pod("a")
    session.pod("b")
    assert kinds(session.hear(NotCreated("ns-podgroup-g", "a quota"))) == [PodGone] * 2
    (news,) = session.hear(NotCreated("another", "a quota"))
    assert news.application_id == "another"


def test_a_pod_that_fails_for_another_reason_fails():
    session = Grouped(1)
    session.pod("a")
    session.cluster.carry_out(FailPod("uid-a", "ApplicationRejected", "why"), session.now)
    assert session.whats() == ["fail"]


def test_a_bind_says_application_and_queue_to_whoever_reads_the_pod_after_a_restart():
    session = Grouped(1, queue="root.g")
    session.pod("a")
    session.cluster.carry_out(BindPod("uid-a", "n1"), session.now)
    (bind,) = [op for op in session.done if op.what == "bind"]
    annotations = bind.body["metadata"]["annotations"]
    assert annotations == {
        "yunikorn.apache.org/app-id": "ns-podgroup-g",
        "yunikorn.apache.org/queue": "root.g",
    }
    body = raw("a", node="n1")
    body["metadata"] |= {"labels": {LABEL: "g"}, "annotations": annotations}
    spec = pod_view(body, READING, lambda uid: False).spec
    assert (spec.application_id, spec.queue_name) == ("ns-podgroup-g", "root.g")


def test_a_pod_is_told_once_however_often_it_is_seen_and_however_many_come():
    session = Grouped(9)
    for at in range(8):
        session.pod(f"p{at}")
        session.pod(f"p{at}")
    assert session.done == []
    session.now += pod_groups.TELL_SECONDS * 10**9
    session.hear()
    session.now += pod_groups.TELL_SECONDS * 10**9
    session.hear()
    assert len(session.events()) == 8
    assert session.done[0].body["status"]["conditions"][0]["message"] == (
        "PodGroup.scheduling.x-k8s.io ns/g: 9 pods must start together, and some do not exist yet"
    )


def test_what_a_pod_costs_does_not_grow_with_its_group(monkeypatch):
    looked = []
    lacks = pod_groups._Group.lacks
    monkeypatch.setattr(pod_groups._Group, "lacks", lambda *of: looked.append(1) or lacks(*of))
    for count in (100, 1_000):
        session = Grouped(count)
        looked.clear()
        for at in range(count):
            session.pod(f"p{at}")
        assert len(session.let_go) == count
        assert len(looked) == count
        assert len(session.cluster.groups._due) <= 2


def test_a_gang_has_an_application_that_no_other_has_and_none_that_is_there_still():
    session = Grouped(2)
    other = {LABEL: "h", "applicationId": "x"}
    session.hear(PodGroupSeen((COSCHEDULING, "ns", "h"), {"": Gang("h", 2)}))
    for name in "ab":
        session.pod(name, labels={"applicationId": "x"})
        session.pod(f"h{name}", labels=other)
    names = {pod.spec.name: pod.spec.application_id for pod in session.world.all_pods()}
    assert names == {"a": "x", "b": "x", "ha": "x-2", "hb": "x-2"}
    session.world.application_of(session.world.pods["uid-a"])
    for name in "ab":
        session.hear(PodDeleted(f"uid-{name}"))
    for name in "cd":
        session.pod(name, labels={"applicationId": "x"})
    assert session.world.pods["uid-c"].spec.application_id == "x-3"


def test_a_gang_that_went_back_is_made_anew_of_who_waits_then():
    session = Grouped(2)
    session.pod("a")
    session.pod("b")
    session.hear(NotCreated("ns-podgroup-g", "a quota"))
    session.hear(PodDeleted("uid-b"))
    session.pod("c", nodeSelector={"zone": "a"})
    session.now += 10**12
    session.hear()
    (first, _) = session.world.all_pods()
    assert [group.min_member for group in first.spec.task_groups] == [1, 1]


@pytest.mark.parametrize(("stated", "wanted"), [(0, 0), (1, 30), (90, 90)])
def test_a_groups_timeout_is_that_of_its_placeholders_and_not_too_short(stated, wanted):
    session = Grouped(2, timeout_seconds=stated)
    session.pod("a")
    session.pod("b")
    (first, _) = session.world.all_pods()
    assert first.spec.placeholder_timeout_seconds == wanted
    policy = first.spec.annotations["yunikorn.apache.org/schedulingPolicyParameters"]
    assert parse_policy_parameters(policy) == (wanted, "Hard")


def restarted(*pods):
    """Return a cluster that has listed a group of 2 and some pods, and whose turn has begun."""
    session = Session()
    session.see(PodGroupSeen((COSCHEDULING, "ns", "g"), {"": Gang("g", 2)}))
    for pod in pods:
        session.see(PodSeen(pod))
    session.cluster.begin(1, 1)
    return session


def test_a_gang_that_reserved_is_taken_up_by_what_its_placeholders_say():
    groups = [{"name": "lead", "minMember": 2, "minResource": {"cpu": "1000m"}}]
    shape = {"annotations": {POD_GROUP: "PodGroup.scheduling.x-k8s.io ns/g"}}
    text = json.dumps([{**groups[0], **shape}])
    body = raw("tg-x-lead-1")
    body["metadata"]["labels"] = {"yunikorn.apache.org/app-id": "x-2"}
    body["metadata"]["annotations"] = {
        "internal.yunikorn.apache.org/placeholder": "true",
        "yunikorn.apache.org/task-group-name": "lead",
        "yunikorn.apache.org/task-groups": text,
        **shape["annotations"],
    }
    placeholder = pod_view(body, READING, lambda uid: False)
    session = restarted(view("a"), placeholder)
    pod = session.world.pods["uid-a"]
    assert (pod.spec.application_id, pod.spec.task_group_name) == ("x-2", "lead")
    assert list(session.world.applications) == ["x-2"]
    assert session.world.applications["x-2"].task_groups == task_groups_of(text)


def test_a_gang_that_ran_is_taken_up_by_what_its_binds_said_and_others_join_it():
    body = raw("a", node="n1")
    body["metadata"]["labels"] = {LABEL: "g"}
    body["metadata"]["annotations"] = {"yunikorn.apache.org/app-id": "x-2"}
    running = pod_view(body, READING, lambda uid: False)
    session = restarted(running, view("b"))
    found = {pod.spec.name: pod.spec.application_id for pod in session.world.all_pods()}
    assert found == {"a": "x-2", "b": "x-2"}
    assert not session.world.applications["x-2"].task_groups


NAMES = ("a", "b", "c", "d")
STEPS = st.lists(
    st.tuples(st.just("pod"), st.sampled_from(NAMES))
    | st.tuples(st.just("gated"), st.sampled_from(NAMES))
    | st.tuples(st.just("gone"), st.sampled_from(NAMES))
    | st.tuples(st.just("Succeeded"), st.sampled_from(NAMES))
    | st.tuples(st.just("Failed"), st.sampled_from(NAMES))
    | st.tuples(st.just("timeout"), st.sampled_from(NAMES))
    | st.tuples(st.just("bind"), st.sampled_from(NAMES))
    | st.tuples(st.just("group"), st.sampled_from([None, 0, 1, 2, 3])),
    max_size=25,
)


def _step(session, what, which):
    uid = f"uid-{which}"
    if what == "group":
        return session.group(which)
    if what == "gone":
        return session.hear(PodDeleted(uid))
    if what == "timeout":
        return session.cluster.carry_out(
            FailPod(uid, "ResourceReservationTimeout", "why"), session.now
        )
    if what == "bind":
        return session.cluster.carry_out(BindPod(uid, "n1"), session.now)
    if what in ("Succeeded", "Failed"):
        return session.ended(which, what)
    gates = {"schedulingGates": [{"name": "x"}]} if what == "gated" else {}
    return session.pod(which, **gates)


@given(STEPS)
def test_whatever_happens_nobody_starts_below_the_minimum_and_nothing_is_left(steps):
    session = Grouped(2)
    minimum, over = 2, {}
    for what, which in steps:
        if what == "group":
            minimum = which
        if what in ("pod", "gated") and over.get(which):
            continue  # no pod comes back from its end
        if what in ("Succeeded", "Failed", "gone"):
            over[which] = "" if what == "gone" else what
        before = set(session.let_go)
        succeeded = [name for name, phase in over.items() if phase == "Succeeded"]
        _step(session, what, which)
        session.now += 10**12
        session.hear()
        new = set(session.let_go) - before
        if new:
            assert minimum is not None
            assert before or len(new) + len(succeeded) >= minimum
        groups = session.cluster.groups
        for group in groups._groups.values():
            assert not set(group.waiting) & set(group.let_go)
            assert set(group.waiting) | set(group.let_go) <= set(group.members)
            assert {s: n for s, n in group.by_subgroup.items() if n} == (
                {"": len(group.members)} if group.members else {}
            )
        waiting = {uid for group in groups._groups.values() for uid in group.waiting}
        assert not waiting & set(session.world.pods)
    for name in NAMES:
        session.hear(PodDeleted(f"uid-{name}"))
    groups = session.cluster.groups
    kept = (groups._groups, groups._of_pod, groups._of_object, groups._claimed)
    assert kept == ({}, {}, {}, {})
    assert session.world.pods == {}


class OfCore(Session):
    """A cluster with a PodGroup ``g`` of core Kubernetes, and pods of it on nodes."""

    def __init__(self, minimum, pods):
        super().__init__()
        path = "/apis/scheduling.k8s.io/v1alpha3/podgroups"
        self.cluster = KubernetesCluster(
            self.world,
            operate=self.done.append,
            now_text=lambda: "t",
            path_of=lambda kind: path if kind == CORE else "",
        )
        self.now = 10**9
        self.cluster.begin(1, self.now)
        seen = PodGroupSeen((CORE, "ns", "g"), {"": Gang("g", minimum)}, "uid-g", {})
        self.cluster.report(seen)
        for name in pods:
            self.see_pod(name)

    def see_pod(self, name, **more):
        body = raw(name, node="n1", **more)
        body["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        self.cluster.report(PodSeen(pod_view(body, READING, self.cluster.knows)))

    def conditions(self):
        """Return what is written next of the group, by type of its conditions."""
        before = len(self.done)
        for _ in range(2):
            self.now += 2 * 10**9
            self.cluster.advance(self.now)
        written = [op.body["status"] for op in self.done[before:] if op.path]
        return [{each["type"]: each["status"] for each in one["conditions"]} for one in written]

    def evict(self, name):
        release = TerminationType.PREEMPTED_BY_SCHEDULER
        self.cluster.carry_out(DeletePod(f"uid-{name}", release, "for x"), self.now)


def test_a_group_that_loses_its_minimum_by_evictions_is_a_target_of_disruption():
    session = OfCore(2, ["a", "b", "c"])
    assert session.conditions() == [{"PodGroupInitiallyScheduled": "True"}]
    session.evict("a")
    assert session.conditions() == []  # two run on
    session.evict("b")
    is_target = {"PodGroupInitiallyScheduled": "True", "DisruptionTarget": "True"}
    assert session.conditions() == [is_target]
    session.cluster.report(EvictionRefused("uid-a", "a budget"))
    assert session.conditions() == [is_target | {"DisruptionTarget": "False"}]
