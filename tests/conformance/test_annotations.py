"""The annotation strings of ../shared: every one is judged as its file says."""

import json

import pytest

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


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ('[{"minMember": 1, "minResource": {}}]', "can't get taskGroup Name from pod annotation"),
        ('[{"name": "g", "minMember": 1}]', "can't get taskGroup MinResource from pod annotation"),
        (
            '[{"name": "g", "minResource": {"cpu": 1}}]',
            "can't get taskGroup MinMember from pod annotation",
        ),
        (
            '[{"name": "g", "minMember": -100, "minResource": {"cpu": 1}}]',
            "minMember cannot be negative",
        ),
        (
            '[{"name": "g", "minMember": 1, "minResource": {"cpu": 1, "vcore": 1}}]',
            "collides with another resource",
        ),
        ('[{"name": "g", "minMember": 1, "minResource": {"cpu": "x"}}]', "is not a quantity"),
        ('[{"name": "g", "minMember": 2000000000, "minResource": {"cpu": 5000000}}]', "overflows"),
        ('[{"name": "g", "minMember": 1.5, "minResource": {"cpu": 1}}]', "whole number"),
    ],
)
def test_k07_k08_a_bad_task_group_is_refused_with_its_rule(annotation, message):
    with pytest.raises(TaskGroupsError) as caught:
        parse_task_groups(annotation)
    assert message in str(caught.value)


@pytest.mark.parametrize("cpu", ["1", 1])
def test_k07_cpu_as_a_number_or_as_text_is_the_same(cpu):
    (group,) = parse_task_groups(
        json.dumps([{"NAME": "g", "minmember": 1, "minResource": {"cpu": cpu}}])
    )
    assert group.min_resource == {"vcore": 1000}
