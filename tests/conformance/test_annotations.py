"""The annotation strings of ../shared: every one is judged as its file says."""

import json

import pytest

from services.shim_adapter.records import ApplicationRecord
from services.shim_adapter.translation.placeholders import placeholder_pod
from services.shim_adapter.translation.task_groups import (
    TaskGroupsError,
    parse_policy_parameters,
    parse_task_groups,
    placeholder_ask,
)


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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
