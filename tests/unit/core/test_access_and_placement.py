"""Who may submit, and to which queue: boundary cases of docs/rules/queues.md#checks, docs/rules/queues.md#access, docs/rules/placement.md#rules, docs/rules/applications.md#rejections and docs/rules/quotas.md."""

import pytest

from services.core.scheduler.model.access import parse_access
from shared.messages.interface import UserGroupInformation
from tests.builders import Core, section
from tests.table import each_row


@each_row(
    ("text", "everybody"),
    [
        ("*", True),
        (" *", True),
        ("* ops", True),
        ("alice *", True),
        ("alice,*", False),
        ("alice dev,*", False),
        ("*,alice *,dev", False),
    ],
)
def test_a_wildcard_is_everybody_only_where_it_stands_alone(text, everybody):
    access = parse_access(text)
    assert access.allows("carol", ("qa",)) is everybody
    assert access.allows("alice", ()) is ("alice" in text or everybody)


def placing(rules: str, *queues: str) -> Core:
    text = "partitions: [{name: default, placementrules: [%s], queues: [%s]}]"
    return Core(text % (rules, "{name: root, submitacl: '*', queues: [%s]}" % ", ".join(queues)))


def placed(core: Core, queue: str = "", user: str = "alice", **more) -> str:
    """Return the queue that an application goes to, or why it is rejected."""
    name = f"app-{len(core.answers)}"
    responses = core.application(name, queue, ugi=UserGroupInformation(user), **more)
    refused = [item.reason for item in section(responses, "rejected_applications")]
    return refused[0] if refused else core.partition.applications[name].queue.path


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("root", "root.root"),
        ("ROOT.A.b", "root.a.b"),
        ("rooted.x", "root.rooted_dot_x"),
        ("A.B", "root.a_dot_b"),
    ],
)
def test_a_name_is_a_whole_path_when_it_starts_with_root_and_a_dot(name, path):
    assert placed(placing("{name: provided, create: true}"), name) == path
    by_tag = placing("{name: tag, value: namespace, create: true}")
    assert placed(by_tag, tags={"namespace": name}) == path


def test_a_fixed_rule_may_name_root_itself():
    core = placing("{name: fixed, value: root, create: true, parent: {name: user, create: true}}")
    assert "fixed queue rule with qualified queue" in core.partition.config_error


def test_no_queue_is_made_below_a_leaf():
    core = placing("{name: provided, create: true}", "{name: leaf}")
    reason = "creation of queue root.leaf.a.b failed parent is already a leaf: root.leaf"
    assert placed(core, "root.leaf.a.b").endswith(f"\n{reason}")
    assert set(core.partition.queues) == {"root", "root.leaf"}


def test_an_application_without_a_user_is_nobodys_where_it_must_be_taken_in():
    core = placing("{name: provided}", "{name: a}")
    assert placed(core, "root.a", user="") == "empty user cannot resolve"
    assert placed(core, "root.none", "", tags={"application.create.force": "true"}) == (
        "root.@recovery@"
    )
    (application,) = core.partition.applications.values()
    assert application.request.ugi == UserGroupInformation("nobody", ("nogroup",))
    core.check()


@pytest.mark.parametrize("more", ["", ", create: true", ", parent: {name: user}"])
def test_a_fixed_rule_without_a_value_says_so(more):
    error = placing("{name: fixed%s}" % more).partition.config_error
    assert error.endswith("a fixed queue rule must have a queue name set")
