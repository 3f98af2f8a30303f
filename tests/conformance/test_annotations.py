"""The annotation strings of ../shared: every one is judged as its file says."""

import json

import pytest

from services.shim_adapter.backends.kubernetes.bodies import PlaceholderOptions, placeholder
from services.shim_adapter.records import ApplicationRecord
from services.shim_adapter.translation.placeholders import placeholder_pod
from services.shim_adapter.translation.task_groups import (
    TASK_GROUPS,
    WHERE,
    TaskGroupsError,
    parse_policy_parameters,
    parse_task_groups,
    placeholder_ask,
)
from tests.table import each_row


def test_all_eighteen_task_groups_strings_are_judged_as_their_file_says(shared_data):
    cases = json.loads(
        (shared_data / "data/manifests/yunikorn-annotation-cases/task-groups.json").read_text()
    )
    assert (len(cases["accepted"]), len(cases["rejected"])) == (4, 14)
    for case in cases["accepted"]:
        parse_task_groups(case["annotation"])
    for case in cases["rejected"]:
        with pytest.raises(TaskGroupsError):
            parse_task_groups(case["annotation"])


def test_all_eight_policy_strings_are_judged_as_their_file_says(shared_data):
    path = shared_data / "data/manifests/yunikorn-annotation-cases/schedulingPolicyParameters.json"
    cases = json.loads(path.read_text())["cases"]
    assert len(cases) == 8
    for case in cases:
        assert parse_policy_parameters(case["annotation"]) == (
            case["placeholderTimeout"],
            case["style"],
        )


def test_k01_ten_members_are_asked_for_together():
    (group,) = parse_task_groups(
        '[{"name": "g", "minMember": 10, "minResource": {"cpu": "500m", "memory": "1024M"}}]'
    )
    assert group.min_resource == {"vcore": 500, "memory": 1_024_000_000}
    assert placeholder_ask((group,)) == {"vcore": 5000, "memory": 10_240_000_000, "pods": 10}
    one = placeholder_pod(ApplicationRecord("app01", 1), group, "cause")
    assert one.resource == {"vcore": 500, "memory": 1_024_000_000, "pods": 1}


def group(name="g", members=1, **resource):
    return {"name": name, "minMember": members, "minResource": resource}


@each_row(
    ("value", "message"),
    [
        ({"minMember": 1, "minResource": {}}, "can't get taskGroup Name from pod annotation, {}"),
        (group(name=""), "can't get taskGroup Name from pod annotation, {}"),
        (
            {"name": "g", "minMember": 1},
            "can't get taskGroup MinResource from pod annotation, {}",
        ),
        (
            {"name": "g", "minMember": 1, "minResource": None},
            "can't get taskGroup MinResource from pod annotation, {}",
        ),
        (
            {"name": "g", "minResource": {"cpu": 1}},
            "can't get taskGroup MinMember from pod annotation, {}",
        ),
        (group(members=0), "can't get taskGroup MinMember from pod annotation, {}"),
        (group(members=-100, cpu=1), "minMember cannot be negative, {}"),
    ],
)
def test_k07_a_task_group_that_lacks_something_is_refused_in_yunikorns_words(value, message):
    annotation = json.dumps([value])
    with pytest.raises(TaskGroupsError) as caught:
        parse_task_groups(annotation)
    assert str(caught.value) == message.format(annotation)


@each_row(
    ("value", "message"),
    [
        (group(members="ERR", cpu=1), "minMember must be a whole number"),
        (group(members=1.5, cpu=1), "minMember must be a whole number"),
        (group(members=2**31, cpu=1), "minMember must be a whole number"),
        (group(cpu="ERR"), "'ERR' is not a quantity"),
        (group(memory="1Gx"), "'1Gx' is not a quantity"),
    ],
)
def test_k07_what_is_no_number_is_refused(value, message):
    with pytest.raises(TaskGroupsError) as caught:
        parse_task_groups(json.dumps([value]))
    assert message in str(caught.value)


PIB5 = str(5 * 2**60)


@each_row(
    ("groups", "message"),
    [
        ([group(cpu="-1")], 'minResource "cpu" in taskGroup "g" cannot be negative'),
        (
            [group(cpu=1, memory="-1Mi")],
            'minResource "memory" in taskGroup "g" cannot be negative',
        ),
        (
            [group(cpu="9223372036854776")],
            (
                'minResource "cpu" in taskGroup "g": \'9223372036854776\' does not fit '
                "a signed 64-bit integer"
            ),
        ),
        (
            [group(memory="9223372036854775808")],
            (
                'minResource "memory" in taskGroup "g": \'9223372036854775808\' does not '
                "fit a signed 64-bit integer"
            ),
        ),
        (
            [group(members=2_000_000_000, cpu=5_000_000)],
            'the sum over all members overflows for resource "vcore" in taskGroup "g"',
        ),
        (
            [group(memory=PIB5), group("h", memory=PIB5)],
            'the sum over all members overflows for resource "memory" in taskGroup "h"',
        ),
        (
            [group(cpu="5P"), group("h", vcore="5P")],
            'the sum over all members overflows for resource "vcore" in taskGroup "h"',
        ),
        (
            [group(cpu=1, vcore=1)],
            (
                'minResource "vcore" in taskGroup "g" collides with another resource under '
                'canonical key "vcore"'
            ),
        ),
        (
            [group(vcore=1, cpu=1)],
            (
                'minResource "cpu" in taskGroup "g" collides with another resource under '
                'canonical key "vcore"'
            ),
        ),
        (
            [group(cpu=1, pods=1)],
            (
                'minResource "pods" in taskGroup "g" collides with another resource under '
                'canonical key "pods"'
            ),
        ),
    ],
)
def test_k08_amounts_that_do_not_hold_are_refused_with_their_resource_and_group(groups, message):
    with pytest.raises(TaskGroupsError) as caught:
        parse_task_groups(json.dumps(groups))
    assert str(caught.value) == message


def test_k08_the_largest_that_hold_are_taken():
    (whole,) = parse_task_groups(json.dumps([group(memory=str(2**63 - 1))]))
    assert whole.min_resource == {"memory": 2**63 - 1}
    (zero,) = parse_task_groups(json.dumps([group(members=2**31 - 1, cpu=0)]))
    assert placeholder_ask((zero,)) == {"pods": 2**31 - 1}


@pytest.mark.parametrize("cpu", ["1", 1])
def test_k07_cpu_as_a_number_or_as_text_is_the_same(cpu):
    (group,) = parse_task_groups(
        json.dumps([{"NAME": "g", "minmember": 1, "minResource": {"cpu": cpu}}])
    )
    assert group.min_resource == {"vcore": 1000}


def test_every_key_of_a_task_group_is_read_whatever_its_case_but_labels_are_not_ours():
    """docs/rules/gangs.md#task-groups: Go json, keys case-insensitive, also those inside of what a group holds."""
    when = "RequiredDuringSchedulingIgnoredDuringExecution"
    term = {"MatchExpressions": [{"Key": "Zone", "Operator": "In", "Values": ["Key"]}]}
    near = {"LabelSelector": {"MatchLabels": {"Key": "v"}}, "TopologyKey": "rack"}
    wanted = {
        "NAME": "g", "MINMEMBER": 3, "MinResource": {"cpu": 1}, "NodeSelector": {"Key": "x"},
        "Tolerations": [{"Key": "gpu", "OPERATOR": "Exists", "Effect": "NoSchedule"}],
        "Affinity": {
            "NodeAffinity": {when: {"NodeSelectorTerms": [term]}}, "PodAntiAffinity": {when: [near]},
        },
        "TopologySpreadConstraints": [
            {"MaxSkew": 2, "TopologyKey": "zone", "WhenUnsatisfiable": "DoNotSchedule"}
        ],
    }  # fmt: skip
    plain = {
        "name": "g", "minMember": 3, "minResource": {"cpu": 1}, "nodeSelector": {"Key": "x"},
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "Zone", "operator": "In", "values": ["Key"]}]}]}},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"Key": "v"}}, "topologyKey": "rack"}]},
        },
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    }  # fmt: skip
    text = json.dumps([wanted])
    assert parse_task_groups(text) == parse_task_groups(json.dumps([plain]))
    (group,) = parse_task_groups(text)
    application = ApplicationRecord("app", 1, gang_annotations={TASK_GROUPS: text})
    spec = placeholder_pod(application, group, "cause")
    made = placeholder(spec, None, (), PlaceholderOptions())["spec"]
    assert {key: made[key] for key in WHERE} == {key: plain[key] for key in WHERE}


def test_what_lies_too_deep_in_a_task_group_is_left_as_it_is():
    deep = [wanted := []]
    for _ in range(500):
        wanted.append(wanted := [])
    with pytest.raises(TaskGroupsError, match="a map was expected, found list"):
        parse_task_groups(json.dumps([{**group(cpu=1), "tolerations": deep}]))
