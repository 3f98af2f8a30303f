"""The shim adapter at its border: what people write is bounded, or refused with a sentence."""

import json
import sqlite3
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.shim_adapter.backends.kubernetes.objects import node_record, pod_view, time_ns
from services.shim_adapter.backends.simulated.store import ClusterStore
from services.shim_adapter.mirror.asks import ask_of
from services.shim_adapter.records import ApplicationPhase, PodRecord
from services.shim_adapter.service import STATE_FILE, ShimOptions, ShimService
from services.shim_adapter.translation.bounds import MAX_ITEM_BYTES, MAX_SECONDS
from services.shim_adapter.translation.errors import ManifestError
from services.shim_adapter.translation.manifests import translate
from services.shim_adapter.translation.namespaces import namespace_tags
from services.shim_adapter.translation.pods import Reading, translate_pod
from services.shim_adapter.translation.task_groups import (
    TaskGroupsError,
    parse_policy_parameters,
    parse_task_groups,
    policy_error,
)
from shared.bus import codec
from shared.messages.commands import (
    CommandResult,
    ManifestDocument,
    PlaceForeignPods,
    PodSpec,
    SubmitApplication,
    SubmitPods,
    SubmitResult,
    TaskGroupSpec,
)
from shared.messages.envelope import SHIM_ADAPTER, Envelope
from shared.messages.interface import NodeAction, NodeInfo, UpdateRequest
from shared.messages.protocol import Heartbeat, SyncEnd, SyncRequest
from shared.model.numbers import INT64_MAX
from tests.table import each_row
from tests.unit.shim_adapter.test_kubernetes_objects import READING, raw

NOW = 1_767_225_600_000_000_000
TIMEOUT = "placeholderTimeoutInSeconds"


class Shim:
    """A shim adapter over a simulated cluster; every answer can be sent."""

    def __init__(self, folder=None):
        self.service = ShimService(ShimOptions(state_dir=folder, default_run_ns=0))
        self.machine = self.service.make_machine()
        self.number = 0

    def send(self, message, epoch=0):
        self.number += 1
        wrapped = Envelope(
            f"m{self.number}",
            type(message).__name__,
            message,
            SHIM_ADAPTER,
            "test",
            epoch=epoch,
            reply_to="api.x#1",
        )
        out = self.machine.handle(wrapped, NOW) + self.machine.flush(NOW)
        for item in out:
            assert codec.decode(type(item.message).__name__, codec.encode(item.message))
        return [item.message for item in out]

    def answer(self, message):
        return next(m for m in self.send(message) if isinstance(m, CommandResult | SubmitResult))


# --- numbers ------------------------------------------------------------------------------------


@each_row(
    ("stated", "seconds", "is_told"),
    [
        ("9000000000", MAX_SECONDS, True),
        (str(MAX_SECONDS + 1), MAX_SECONDS, True),
        (str(INT64_MAX // 10**9), MAX_SECONDS, True),
        (str(INT64_MAX // 10**9 + 1), 0, True),
        ("20000000000", 0, True),
        ("10000000000", 0, True),
        ("1" + "0" * 16, 0, True),
        (str(INT64_MAX), 0, True),
        (str(INT64_MAX + 1), 0, False),
        ("1" + "0" * 20, 0, False),
        ("9" * 5000, 0, False),
        (str(MAX_SECONDS), MAX_SECONDS, False),
        ("0000000000000000000000000000000030", 30, False),
        ("+30", 30, False),
        ("-30", 0, False),
        ("3_0", 0, False),
        ("٣", 0, False),
        ("30.5", 0, False),
        ("", 0, False),
    ],
)
def test_a_placeholder_timeout_is_an_int64_of_at_most_100_years(stated, seconds, is_told):
    assert parse_policy_parameters(f"{TIMEOUT}={stated}") == (seconds, "Soft")
    told = policy_error(f"{TIMEOUT}={stated}")
    assert bool(told) is is_told
    sentences = {
        MAX_SECONDS: "is longer than 100 years: it is reduced to 3153600000 seconds",
        0: "overflows a duration: it is the default, 900 seconds",
    }
    assert not told or sentences[seconds] in told


def pod_body(annotations=None, **spec):
    metadata = {"name": "p", "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"schedulerName": "yunikorn", "containers": [{}], **spec}}


def read(body):
    return translate_pod(body, where="", name="p", reading=Reading())


def test_a_timeout_that_is_bounded_is_told_at_its_pod_and_its_application():
    policy = {"yunikorn.apache.org/schedulingPolicyParameters": f"{TIMEOUT}=9000000000"}
    pod = read(pod_body(policy))
    assert pod.placeholder_timeout_seconds == MAX_SECONDS
    assert pod.task_groups_error.startswith(f"{TIMEOUT} 9000000000 is longer than")


@each_row("stated", ["9" * 30, "9" * 5000, str(MAX_SECONDS + 1), "-1", "x", "1.5"])
def test_run_seconds_are_bounded(stated):
    with pytest.raises(ManifestError, match="a whole number of seconds up to 3153600000, found"):
        read(pod_body({"muster.io/run-seconds": stated}))


@each_row("stated", [0, -1, 2**31, 10**30, 1.5, "60", True])
def test_a_deadline_is_a_positive_int32(stated):
    with pytest.raises(ManifestError, match="from 1 to 2147483647, found") as caught:
        read(pod_body(activeDeadlineSeconds=stated))
    assert caught.value.field_path == "spec.activeDeadlineSeconds"


@each_row(
    ("annotated", "deadline", "stated"),
    [
        (None, None, 0),
        ("0", None, 0),
        ("90", None, 90),
        (None, 60, 60),
        ("90", 60, 60),
        ("30", 60, 30),
    ],
)
def test_how_long_a_pod_says_that_it_runs(annotated, deadline, stated):
    annotations = {"muster.io/run-seconds": annotated} if annotated else {}
    pod = read(pod_body(annotations, **({"activeDeadlineSeconds": deadline} if deadline else {})))
    assert pod.stated_run_ns == stated * 10**9
    tags = ask_of(PodRecord("u", pod, 1, 1), originator=False).allocation_tags
    assert tags.get("muster.io/run-seconds") == (str(stated) if stated else None)


@pytest.mark.parametrize("stated", ["9" * 30, "9" * 5000, 10**30])
def test_a_sleep_may_be_as_long_as_it_likes(stated):
    pod = read(pod_body(containers=[{"command": ["sleep", stated]}]))
    assert pod.run_ns == MAX_SECONDS * 10**9


@each_row("priority", [2**31, -(2**31) - 1, 10**30, 1.0, "1", True])
def test_a_priority_is_an_int32(priority):
    with pytest.raises(ManifestError, match=r"spec\.priority: a 32-bit whole number"):
        read(pod_body(priority=priority))
    body = {"kind": "PriorityClass", "metadata": {"name": "c"}, "value": priority}
    translated = translate([ManifestDocument("f", 1, json.dumps(body))], 0)
    (refused,) = translated.refused
    assert "value: a PriorityClass needs a 32-bit whole number, found" in str(refused[1])
    shim = Shim()
    if type(priority) is int and abs(priority) < 2**62:
        for command in (
            SubmitPods((PodSpec("p", "app", {"vcore": 1}, priority=priority),)),
            PlaceForeignPods("n", (PodSpec("p", "", {}, priority=priority, foreign="default"),)),
        ):
            answer = shim.answer(command)
            assert "the priority is a 32-bit whole number, found" in answer.message
    assert shim.machine.world.pods == {}


@pytest.mark.parametrize("members", [100_001, 2**31 - 1])
def test_a_gang_has_a_bound_on_its_members(members):
    text = [{"name": "g", "minMember": members, "minResource": {"cpu": "1m"}}]
    pod = read(pod_body({"yunikorn.apache.org/task-groups": json.dumps(text)}))
    sentence = f"{members} members in all, placeholders are created for at most 100000"
    assert (pod.task_groups, pod.task_groups_error) == ((), sentence)
    group = TaskGroupSpec("g", members, {"vcore": 1})
    assert "at most 100000" in Shim().answer(SubmitApplication("a", task_groups=(group,))).message
    halves = [{**text[0], "name": name, "minMember": 50_001} for name in "ab"]
    pod = read(pod_body({"yunikorn.apache.org/task-groups": json.dumps(halves)}))
    assert pod.task_groups_error.startswith("100002 members")


@pytest.mark.parametrize(
    "group",
    [TaskGroupSpec("g", 0, {}), TaskGroupSpec("g", -5, {}), TaskGroupSpec("g", 1, {"x": -1})],
)
def test_a_command_s_task_groups_are_judged_like_an_annotation_s(group):
    answer = Shim().answer(SubmitApplication("a", task_groups=(group,)))
    assert "minMember must be 1 or more" in answer.message


def test_the_timeouts_of_a_command_are_bounded_and_said_on_the_application():
    shim = Shim()
    for at, timeout in enumerate((9_000_000_000, 10**16, INT64_MAX, -INT64_MAX)):
        command = SubmitApplication(
            f"a{at}", placeholder_timeout_seconds=timeout, execution_timeout_seconds=timeout
        )
        assert shim.answer(command) == CommandResult(done=True)
    messages = [app.message for app in shim.machine.world.applications.values()]
    assert [text.partition(": ")[2] for text in messages] == [
        "it is reduced to 3153600000 seconds",
        *["it is the default, 900 seconds"] * 2,
        "",
    ]
    spec = PodSpec("p", "a0", {"vcore": 1}, execution_timeout_seconds=INT64_MAX, run_ns=INT64_MAX)
    assert shim.answer(SubmitPods((spec,))) == CommandResult(done=True)
    shim.send(SyncRequest("core"))


# --- texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["\\ud800", "a\\udfffb", "\\ud83d"])
def test_half_a_character_in_a_document_is_refused_with_its_place(name):
    body = json.dumps(pod_body()).replace('"p"', f'"{name}"')
    (refused,) = translate([ManifestDocument("f", 1, body)], 0).refused
    assert "metadata.name: the text contains half a character" in str(refused[1])
    key = json.dumps({"kind": "Pod", "metadata": {"x": 1}}).replace('"x"', f'"{name}"')
    (refused,) = translate([ManifestDocument("f", 1, key)], 0).refused
    assert "half a character" in str(refused[1])


def test_a_whole_character_written_in_halves_is_one():
    body = json.dumps(pod_body({"note": "😀"}))
    assert "\\ud83d\\ude00" in body
    (taken,) = translate([ManifestDocument("f", 1, json.dumps({**json.loads(body), "kind": "Pod"}))], 0).taken  # fmt: skip
    assert taken.pods[0].annotations["note"] == "😀"


@each_row("body", ["[" * 100_000, "{", "1" * 5000, '{"a": ' + "1" * 5000 + "}", "NaN"])
def test_a_document_that_cannot_be_read_is_refused(body):
    (refused,) = translate([ManifestDocument("f", 1, body)], 0).refused
    assert str(refused[1])


@pytest.mark.parametrize(
    "info",
    ['{"user": "\\ud800"}', '{"user": "u", "groups": ["\\udfff"]}', "[" * 100_000, '{"user": []}'],
)
def test_user_information_that_does_not_hold_is_nobody_s(info):
    pod = read(pod_body({"yunikorn.apache.org/user.info": info}))
    assert codec.encode(SubmitPods((pod,)))
    assert pod.user == "nobody" or "\ud800" not in pod.user


@each_row(
    ("info", "user", "groups"),
    [
        ('{"user": "u", "groups": ["g", "h"]}', "u", ("g", "h")),
        ('{"User": "u", "GROUPS": ["g"]}', "u", ("g",)),
        ('{"user": "u", "groups": null}', "u", ()),
        ('{"user": "nobody", "groups": ["g"]}', "nobody", ("g",)),
        ('{"user": "u", "groups": "abc"}', "nobody", ()),
        ('{"user": "u", "groups": ["g", 1]}', "nobody", ()),
        ('{"user": 5, "groups": ["g"]}', "nobody", ()),
        ('{"user": "", "groups": ["g"]}', "nobody", ()),
        ('{"groups": ["g"]}', "nobody", ()),
        ("[]", "nobody", ()),
    ],
)
def test_user_information_holds_as_a_whole_or_is_nobody_s(info, user, groups):
    pod = read(pod_body({"yunikorn.apache.org/user.info": info}))
    assert (pod.user, pod.groups) == (user, groups)


@each_row(
    "group",
    [
        {"name": "\ud800"},
        {"labels": {"a": "\ud800"}},
        {"annotations": {"\udfff": "a"}},
        {"nodeSelector": {"a": "\ud800"}},
        {"tolerations": [{"key": "\ud800"}]},
        {"minResource": {"\ud800": 1}},
        {"other": ["\ud800"]},
    ],
)
def test_a_task_group_with_half_a_character_is_no_task_group(group):
    whole = [{"name": "g", "minMember": 1, "minResource": {"cpu": 1}} | group]
    with pytest.raises(TaskGroupsError, match="half a character") as caught:
        parse_task_groups(json.dumps(whole))
    assert str(caught.value).encode()


def test_a_namespace_s_annotations_may_hold_anything():
    prefix = "yunikorn.apache.org/"
    tags = namespace_tags(
        {
            f"{prefix}namespace.quota": '{"\\ud800": "1"}',
            f"{prefix}namespace.guaranteed": "{" + '"a":1,' * 10_000,
            f"{prefix}namespace.maxApps": "9" * 30,
            f"{prefix}parentqueue": "root." + "a." * 100_000,
        }
    )
    assert list(tags) == ["namespace.parentqueue"]
    assert len(tags["namespace.parentqueue"]) == 1024


# --- sizes --------------------------------------------------------------------------------------


@each_row(
    ("what", "body"),
    [
        ("requests", pod_body(containers=[{"resources": {"requests": {f"a.b/{n}": 1 for n in range(3000)}}}])),
        ("user and groups", pod_body({"yunikorn.apache.org/user.info": json.dumps({"user": "u" * 40_000})})),
        ("names", pod_body({"yunikorn.apache.org/task-group-name": "g" * 40_000})),
        ("imagePullSecrets", pod_body(imagePullSecrets=[{"name": "s" * 40_000}])),
        ("affinity, selectors and tolerations", pod_body(tolerations=[{"key": "k" * 99}] * 400)),
    ],
)  # fmt: skip
def test_what_travels_with_a_pod_is_bounded_and_the_largest_of_it_named(what, body):
    with pytest.raises(ManifestError, match=f"at most {MAX_ITEM_BYTES}; most of it are its {what}"):
        read(body)


def test_what_a_pod_keeps_to_itself_may_be_large():
    assert read(pod_body({"note": "x" * 200_000}))


def test_an_application_s_id_has_a_bound_where_it_is_submitted():
    shim = Shim()
    for command in (
        SubmitApplication("é" * 128),
        SubmitPods((PodSpec("p", "é" * 128, {"vcore": 1}),)),
    ):
        answer = shim.answer(command)
        assert not answer.done
        assert answer.message.startswith("an application's ID has at most 255 bytes, found 256")
    assert shim.answer(SubmitApplication("é" * 127)).done
    tags = SubmitApplication("b", tags={"a": "x" * 40_000})
    assert "most of it are its tags" in shim.answer(tags).message


# --- what could not be sent ---------------------------------------------------------------------


def test_an_ask_that_could_not_be_sent_fails_its_pod_and_an_application_all_of_its_pods():
    shim = Shim()
    shim.answer(SubmitPods((PodSpec("p", "app", {"vcore": 1}), PodSpec("q", "app", {"vcore": 1}))))
    out = shim.send(Heartbeat("x"))
    world = shim.machine.world
    (application,) = world.applications.values()
    application.phase = ApplicationPhase.RUNNING
    sync = shim.send(SyncRequest("core"))
    first, second = [a for m in sync if isinstance(m, UpdateRequest) for a in m.asks]
    envelope = Envelope("m", "UpdateRequest", UpdateRequest("rm"), SHIM_ADAPTER, "shim_adapter")
    shim.machine.on_unsendable(envelope, first, "it is too large", NOW)
    assert [(pod.phase, pod.reason, pod.message) for pod in world.all_pods()] == [
        ("Failed", "AskRejected", "it is too large"),
        ("Pending", "", ""),
    ]
    application.phase = ApplicationPhase.NEW
    (request,) = [a for m in sync if isinstance(m, UpdateRequest) for a in m.new_applications]
    shim.machine.on_unsendable(envelope, request, "it is too large", NOW)
    assert (application.phase, application.message) == ("Rejected", "it is too large")
    assert all(pod.has_ended for pod in world.all_pods())
    assert second.allocation_key
    assert shim.machine.on_unsendable(envelope, object(), "why", NOW) == []
    assert out == []


def test_a_node_or_an_allocation_that_could_not_be_sent_does_not_keep_a_core_from_recovering():
    shim = Shim()
    shim.machine = ShimService(ShimOptions(nodes=3, node_capacity={"vcore": 1000})).make_machine()
    sync = [message for message in shim.send(SyncRequest("core")) if isinstance(message, SyncEnd)]
    before = sync[0].nodes
    assert before > 1
    envelope = Envelope("m", "UpdateRequest", UpdateRequest("rm"), SHIM_ADAPTER, "shim_adapter")
    name = next(iter(shim.machine.world.nodes))
    shim.machine.on_unsendable(envelope, NodeInfo(name, NodeAction.CREATE), "it is too large", NOW)
    again = shim.send(SyncRequest("core"))
    said = [node.node_id for m in again if isinstance(m, UpdateRequest) for node in m.nodes]
    assert name not in said
    assert [m.nodes for m in again if isinstance(m, SyncEnd)] == [len(said)] == [before - 1]


@pytest.mark.parametrize("answer", [SubmitResult(), CommandResult(done=True)])
def test_an_answer_that_could_not_be_sent_is_a_refusal(answer):
    envelope = Envelope(
        "m", type(answer).__name__, answer, SHIM_ADAPTER, "shim_adapter", reply_to="api.x#1"
    )
    (out,) = Shim().machine.on_unsendable(envelope, None, "it is too large", NOW)
    assert type(out.message) is type(answer)
    assert "it is too large" in str(out.message)


# --- what was kept ------------------------------------------------------------------------------


def test_a_file_with_numbers_of_another_time_and_a_record_that_is_none_is_read(tmp_path):
    shim = Shim(tmp_path)
    shim.answer(SubmitApplication("app", placeholder_timeout_seconds=30))
    names = ("large", "broken", "fine")
    shim.answer(SubmitPods(tuple(PodSpec(name, "app", {"vcore": 1}) for name in names)))
    shim.service.close()
    db = sqlite3.connect(tmp_path / STATE_FILE)
    for key, blob in db.execute("SELECT id, record FROM pods").fetchall():
        record = msgpack.unpackb(blob)
        if record["spec"]["name"] == "large":
            record["spec"]["runNs"] = 10**19
            record["spec"]["executionTimeoutSeconds"] = 2**64 - 1
        elif record["spec"]["name"] == "broken":
            record["spec"]["resource"] = "no map"
        db.execute("UPDATE pods SET record = ? WHERE id = ?", (msgpack.packb(record), key))
    ((key, blob),) = db.execute("SELECT id, record FROM applications").fetchall()
    record = msgpack.unpackb(blob) | {"placeholderTimeoutSeconds": 10**19}
    db.execute("UPDATE applications SET record = ? WHERE id = ?", (msgpack.packb(record), key))
    db.commit()
    db.close()
    again = Shim(tmp_path)
    world = again.machine.world
    assert sorted(pod.spec.name for pod in world.all_pods()) == ["fine", "large"]
    for pod in world.all_pods():
        world.touch_pod(pod)
    for application in world.applications.values():
        world.touch_application(application)
    again.send(SyncRequest("core"))
    again.service.close()
    third = ClusterStore(tmp_path / STATE_FILE)
    assert len(third.load().pods) == 2
    third.close()


def test_a_record_that_cannot_be_written_does_not_keep_the_others_from_it(tmp_path):
    shim = Shim(tmp_path)
    shim.answer(SubmitPods((PodSpec("p", "app", {"vcore": 1}), PodSpec("q", "app", {"vcore": 1}))))
    for pod in shim.machine.world.all_pods():
        run_ns = 10**30 if pod.spec.name == "p" else 7
        pod.spec = replace(pod.spec, run_ns=run_ns)
        shim.machine.world.touch_pod(pod)
    shim.machine.flush(NOW)
    shim.service.close()
    found = {pod.spec.name: pod.spec.run_ns for pod in Shim(tmp_path).machine.world.all_pods()}
    assert found == {"p": 0, "q": 7}


# --- Kubernetes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "x", None])
def test_a_time_of_an_object_is_an_int64(text):
    assert 0 <= time_ns(text) <= INT64_MAX


def test_a_node_s_amount_that_cannot_be_counted_leaves_out_itself_alone():
    allocatable = {"cpu": "4", "memory": "8Gi", "a.b/c": "99999999999999999999", "d": "x"}
    node = node_record({"metadata": {"name": "n"}, "status": {"allocatable": allocatable}})
    assert node.capacity == {"vcore": 4000, "memory": 8 * 2**30}


@given(st.sampled_from([2**31, -(2**40), 10**30]))
def test_a_foreign_pod_s_priority_is_brought_to_an_int32(priority):
    body = raw(node="n1")
    body["spec"] |= {"schedulerName": "other", "priority": priority}
    view = pod_view(body, READING, lambda _: False)
    assert view.spec.priority in (2**31 - 1, -(2**31))


def test_an_annotation_that_once_stopped_the_shim_is_read_on_kubernetes_too():
    body = raw()
    body["metadata"]["annotations"] = {
        "yunikorn.apache.org/schedulingPolicyParameters": f"{TIMEOUT}=100000000000000000000",
        "yunikorn.apache.org/user.info": '{"user": "\\ud800"}',
        "yunikorn.apache.org/task-groups": '[{"name": "\\ud800"}]',
    }
    view = pod_view(body, READING, lambda _: False)
    assert (view.error, view.spec.user, view.spec.task_groups) == ("", "nobody", ())
    assert "half a character" in view.spec.task_groups_error
    assert codec.encode(SubmitPods((view.spec,)))


# --- names --------------------------------------------------------------------------------------

ODD = ["a/b", "..", ".", "-", "a-", "a\nb", "a\x1b[2J", "a%2Fb", "a b", "ä", "a?", "a\u2028b"]
APP_ID = "yunikorn.apache.org/app-id"


@each_row("name", ODD)
@each_row(("kind", "key"), [("labels", APP_ID), ("annotations", APP_ID), ("labels", "applicationId"), ("labels", "spark-app-selector")])  # fmt: skip
def test_an_application_s_id_is_judged_as_a_label_s_value(name, kind, key):
    body = pod_body()
    body["metadata"][kind] = {key: name}
    with pytest.raises(ManifestError, match="must consist of alphanumeric characters") as caught:
        read(body)
    assert caught.value.field_path == f"metadata.{kind}[{key}]"


@each_row("name", ["a", "A_b.c-1", "app_2", "a" * 63, "a" * 70, "x-uniqueautogen"])
def test_what_a_label_s_value_may_be_is_an_application_s_id_cut_where_it_is_longer(name):
    assert read(pod_body({APP_ID: name})).application_id == name[:63]


def submitted(name="p", namespace="default", key="name"):
    body = {**pod_body(), "kind": "Pod"}
    body["metadata"] = {key: name, "namespace": namespace}
    return translate([ManifestDocument("f", 1, json.dumps(body))], 0)


@each_row("name", [*ODD, "A", "a_b", "a..b", ".a", "a" * 254])
def test_a_document_s_name_is_a_dns_subdomain(name):
    (refused,) = submitted(name).refused
    assert "must consist of at most 253 lower case alphanumeric characters" in str(refused[1])
    assert refused[1].field_path == "metadata.name"


def test_a_generated_name_is_what_it_begins_with():
    (taken,) = submitted("a-b-", key="generateName").taken
    assert taken.pods[0].name == "a-b"


@each_row("name", [*ODD, "A", "a_b", "a.b", "a" * 64])
def test_a_namespace_is_a_dns_label(name):
    (refused,) = submitted(namespace=name).refused
    assert "must consist of at most 63 lower case alphanumeric characters" in str(refused[1])
    assert refused[1].field_path == "metadata.namespace"
    body = {"kind": "Namespace", "metadata": {"name": name}}
    assert translate([ManifestDocument("f", 1, json.dumps(body))], 0).refused


def test_the_names_of_a_workload_s_pods_are_judged_as_they_will_be():
    task = {"name": "A_b", "replicas": 2, "template": pod_body()}
    body = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "metadata": {"name": "j"}}
    body["spec"] = {"schedulerName": "volcano", "tasks": [task]}
    (refused,) = translate([ManifestDocument("f", 1, json.dumps(body))], 0).refused
    assert "it would be 'j-A_b-0'" in str(refused[1])


@each_row("name", ["..", ".", "a\nb", "a\x1b[2J", "a\u2028b"])
def test_a_command_s_application_can_be_asked_for(name):
    shim = Shim()
    for command in (SubmitApplication(name), SubmitPods((PodSpec("p", name, {"vcore": 1}),))):
        assert "must be printable, and neither '.' nor '..'" in shim.answer(command).message
    assert not shim.machine.world.applications


@each_row("name", [*ODD, "A", "a_b", "a..b", "a" * 254])
def test_a_simulated_cluster_has_no_pods_that_an_api_server_would_not_have(name):
    shim = Shim()
    assert "must consist of at most" in shim.answer(SubmitPods((PodSpec(name, "app", {}),))).message
    assert not shim.machine.world.pods


# --- annotations that are read and refused ------------------------------------------------------

POLICY = "yunikorn.apache.org/schedulingPolicyParameters"


@each_row(
    ("annotations", "part"),
    [
        ({POLICY: "Hard"}, "'Hard' is not one key=value"),
        ({POLICY: "a=b=c"}, "'a=b=c' is not one key=value"),
        ({POLICY: "gangSchedulingStyle=hard"}, "gangSchedulingStyle 'hard' is neither Soft nor Hard"),
        ({POLICY: f"{TIMEOUT}=1m"}, f"{TIMEOUT} '1m' is not a number of seconds"),
        ({POLICY: f"{TIMEOUT}=-1"}, f"{TIMEOUT} '-1' is not a number of seconds"),
        ({POLICY: "placeholderTimeout=1"}, "there is no 'placeholderTimeout'"),
        ({"yunikorn.apache.org/allow-preemption": "False"}, "'False' is neither true nor false"),
        ({"yunikorn.apache.org/user.info": "{"}, "the user is 'nobody'"),
        ({"yunikorn.apache.org/user.info": '{"user": 5}'}, "the user is 'nobody'"),
    ],
)  # fmt: skip
def test_an_annotation_that_does_not_hold_is_said_to(annotations, part):
    assert part in read(pod_body(annotations)).annotations_ignored


@each_row(
    "annotations",
    [
        {},
        {POLICY: ""},
        {POLICY: f"gangSchedulingStyle=Hard  {TIMEOUT}=0"},
        {"yunikorn.apache.org/allow-preemption": "false"},
        {"yunikorn.apache.org/user.info": '{"user": "nobody"}'},
        {"yunikorn.apache.org/user.info": ""},
    ],
)
def test_of_annotations_that_hold_nothing_is_said(annotations):
    assert read(pod_body(annotations)).annotations_ignored == ""
