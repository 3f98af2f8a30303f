"""For whom a placement rule is: every type of filter, with every kind of list.

Source: docs/rules/placement.md#rules.
"""

from json import dumps

import pytest

from services.core.configuration import parse_configuration
from services.core.scheduler.report.views import partition_state
from services.core.scheduler.scheduler import ConfigurationError
from shared.messages.interface import UserGroupInformation
from tests.builders import Core
from tests.table import each_row

NOBODY: list[str] = []
ONE, PATTERN, MANY = ["alice"], ["^al.*e$"], ["bob", "alice"]
DEV, DEV_PATTERN, DEV_MANY = ["dev"], ["^d[aeiou]v$"], ["ops", "dev"]

# (users of the filter, groups of the filter, user, groups of the user, whether it names the user)
NAMED = [
    (ONE, NOBODY, "alice", (), True),
    (ONE, NOBODY, "alicea", (), False),
    (ONE, NOBODY, "bob", ("alice",), False),
    (PATTERN, NOBODY, "alice", (), True),
    (PATTERN, NOBODY, "alfie", (), True),
    (PATTERN, NOBODY, "malice", (), False),
    (["lic+"], NOBODY, "malice", (), True),  # a pattern need not match the whole name
    ([r"^[[:alpha:]]+$"], NOBODY, "alice", (), True),  # as RE2 has it
    ([r"^\pL+\z"], NOBODY, "alice1", (), False),
    ([r"^\Qa.\E*$"], NOBODY, "a..", (), True),
    (MANY, NOBODY, "alice", (), True),
    (MANY, NOBODY, "bob", (), True),
    (MANY, NOBODY, "carol", ("bob",), False),
    (NOBODY, DEV, "carol", ("dev",), True),
    (NOBODY, DEV, "carol", ("ops", "dev"), True),
    (NOBODY, DEV, "carol", ("devs",), False),
    (NOBODY, DEV, "dev", ("ops",), False),
    (NOBODY, DEV, "dev", (), True),  # a user without groups has one of the user's own name
    (NOBODY, DEV_PATTERN, "carol", ("dov",), True),
    (NOBODY, DEV_PATTERN, "carol", ("dvv", "devs"), False),
    (NOBODY, DEV_MANY, "carol", ("ops",), True),
    (NOBODY, DEV_MANY, "carol", ("qa",), False),
    *(
        (users, groups, user, of_user, user == "alice" or of_user == ("dev",))
        for users in (ONE, PATTERN, MANY)
        for groups in (DEV, DEV_PATTERN, DEV_MANY)
        for user in ("alice", "carol")
        for of_user in (("dev",), ("qa",))
    ),
]


def rules_with(kind: str, users: list[str], groups: list[str]) -> str:
    parts = [f"users: {dumps(users)}"] * bool(users) + [f"groups: {dumps(groups)}"] * bool(groups)
    parts += [f"type: {kind}"] * bool(kind)
    return (
        "partitions: [{name: default, queues: [{name: root, submitacl: '*', "
        "queues: [{name: chosen}]}], placementrules: "
        "[{name: fixed, value: chosen, filter: {%s}}]}]" % ", ".join(parts)
    )


def lets_through(kind, users, groups, user, of_user) -> bool:
    config = parse_configuration(rules_with(kind, users, groups))
    return config.rules.rules[0].filter.lets_through(user, of_user or (user,))


@pytest.mark.parametrize("kind", ["", "allow", "ALLOW", "deny", "DENY"])
def test_a_filter_with_names(kind):
    # the type is compared without case when it is judged, and with it when the rule is built
    wrong = [row for row in NAMED if lets_through(kind, *row[:-1]) is (row[-1] == (kind == "deny"))]
    assert wrong == []


@each_row(
    ("kind", "expected"),
    [("", True), ("allow", True), ("Allow", True), ("deny", False), ("Deny", True)],
)
@each_row("of_user", [(), ("dev",), ("ops", "dev")])
def test_a_filter_without_names_lets_everybody_through_or_nobody(kind, expected, of_user):
    assert lets_through(kind, [], [], "alice", of_user) is expected


def test_a_rule_without_a_filter_is_for_everybody():
    text = rules_with("", [], []).replace(", filter: {}", "")
    assert parse_configuration(text).rules.rules[0].filter.lets_through("alice", ("alice",))


@pytest.mark.parametrize("kind", ["allow", "deny"])
def test_a_parent_rule_is_filtered_by_itself(kind):
    rule = "{name: fixed, value: leaf, create: true, parent: {name: fixed, value: p, create: true, filter: {type: %s}}}"
    text = "partitions: [{name: default, queues: [{name: root, submitacl: '*'}], placementrules: [%s]}]"
    core = Core(text % (rule % kind))
    core.application("app", "", ugi=UserGroupInformation("alice"))
    assert ("app" in core.partition.applications) is (kind == "allow")


@pytest.mark.parametrize(("kind", "shown"), [("", ""), ("allow", ""), ("deny", "deny")])
def test_a_filter_without_names_is_shown_where_it_does_something(kind, shown):
    told = partition_state(Core(rules_with(kind, [], [])).partition)
    assert told.placement_rules[0].links[0].filter_type == shown


@each_row("pattern", ["^(?!x)a*", r"(a)\1", "a*+", "a{1001}", "("])
def test_a_pattern_that_re2_does_not_know_is_refused(pattern):
    """docs/rules/placement.md#rules: the expressions are Go's, which has no looking around and no way back."""
    with pytest.raises(ConfigurationError, match="is not a proper list or regexp"):
        parse_configuration(rules_with("", [pattern], NOBODY))


def test_a_name_that_a_stranger_sends_takes_no_time_out_of_proportion():
    """``(a+)+$`` takes 2^40 steps for a reader that goes back; RE2 reads the name once."""
    assert not lets_through("", ["(a+)+$"], NOBODY, "a" * 40 + "!", ())
