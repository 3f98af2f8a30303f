"""Paths of placement rules that can be told without an application.

Source: docs/rules/queues.md#checks.
"""

from services.cli.config_check import check_files
from shared.queueconfig import QueueConfigError, load_configuration
from tests.table import each_row

# root.users is a parent, root.users.known and root.leaf are leaves, root.empty a parent of none
QUEUES = (
    "[{name: root, queues: [{name: Users, queues: [{name: Known}]}, {name: Leaf}, "
    "{name: empty, parent: true}]}]"
)
NO_CREATE = "and create is 'false'"


def fixed(value: str, parent: str = "", *, create: bool = False) -> str:
    return _rule("fixed", f"value: {value}", parent, create=create)


def user(parent: str = "", *, create: bool = False) -> str:
    return _rule("user", "", parent, create=create)


def tag(parent: str = "", *, create: bool = False) -> str:
    return _rule("tag", "value: namespace", parent, create=create)


def _rule(name: str, more: str, parent: str, *, create: bool) -> str:
    parts = [
        f"name: {name}",
        more,
        "create: true" if create else "",
        parent and f"parent: {parent}",
    ]
    return "{%s}" % ", ".join(part for part in parts if part)


def last(name: str) -> str:
    return f"which cannot be created because the last queue ({name}) in the hierarchy is a leaf"


def missing(chain: str, path: str, why: str) -> str:
    return f"placement rule no. #0 ({chain}) references non-existing queues ({path}) {why}"


def no_leaf(chain: str, path: str) -> str:
    return f"placement rule no. #0 ({chain}) references a queue ({path}) which is not a leaf"


def said(*rules: str) -> str:
    text = "partitions: [{name: default, queues: %s, placementrules: [%s]}]"
    try:
        load_configuration(text % (QUEUES, ", ".join(rules)))
    except QueueConfigError as error:
        return error.message
    return ""


@each_row(
    ("rule", "expected"),
    [
        # only the rule itself says whether queues may be made, not the rules above it
        (user(fixed("root.users.new"), create=True), ""),
        (user(fixed("root.users.new", create=True)), missing("fixed->user", "root.users.new", NO_CREATE)),
        (user(fixed("root.users.new", create=True), create=True), ""),
        (user(fixed("root.users.new")), missing("fixed->user", "root.users.new", NO_CREATE)),
        (fixed("b", fixed("root.users.new"), create=True), ""),
        (fixed("b", fixed("root.users.new", create=True)), missing("fixed->fixed", "root.users.new.b", NO_CREATE)),
        (tag(user(fixed("root.new")), create=True), ""),
        (tag(user(fixed("root.new", create=True), create=True)), missing("fixed->user->tag", "root.new", NO_CREATE)),
        (fixed("root.users.new", create=True), ""),
        (fixed("root.users.new"), missing("fixed", "root.users.new", NO_CREATE)),
        # a chain that does not name the root begins below it
        (fixed("leaf"), ""),
        (fixed("users.known"), ""),
        (fixed("known", fixed("users")), ""),
        (fixed("known", fixed("root.users")), ""),
        (fixed("nope"), missing("fixed", "root.nope", NO_CREATE)),
        (fixed("nope", create=True), ""),
        (fixed("users"), no_leaf("fixed", "root.users")),
        (fixed("users", create=True), no_leaf("fixed", "root.users")),
        (user(fixed("nope")), missing("fixed->user", "root.nope", NO_CREATE)),
        (user(fixed("users")), ""),
        (fixed("b", fixed("nope")), missing("fixed->fixed", "root.nope.b", NO_CREATE)),
        (fixed("rooted"), missing("fixed", "root.rooted", NO_CREATE)),
        # what an application decides needs a parent above it, all else a leaf at its end
        (user(fixed("root.leaf")), no_leaf("fixed->user", "root.leaf")),
        (user(fixed("root.leaf"), create=True), no_leaf("fixed->user", "root.leaf")),
        (user(fixed("leaf")), no_leaf("fixed->user", "root.leaf")),
        (tag(user(fixed("known", fixed("users")))), no_leaf("fixed->fixed->user->tag", "root.users.known")),
        (fixed("x", user(fixed("root.leaf"))), no_leaf("fixed->user->fixed", "root.leaf")),
        (user(fixed("root.users")), ""),
        (user(fixed("root")), ""),
        (user(fixed("root.empty")), ""),
        (fixed("root.leaf"), ""),
        (fixed("ROOT.LEAF"), ""),
        (fixed("root.users"), no_leaf("fixed", "root.users")),
        (fixed("root.empty"), no_leaf("fixed", "root.empty")),
        (fixed("root"), no_leaf("fixed", "root")),
        # the last queue that exists, by the name that it has in the file
        (fixed("root.leaf.x", create=True), missing("fixed", "root.leaf.x", last("Leaf"))),
        (fixed("root.users.known.x.y", create=True), missing("fixed", "root.users.known.x.y", last("Known"))),
        (user(fixed("users.known.x"), create=True), missing("fixed->user", "root.users.known.x", last("Known"))),
        (fixed("x", fixed("leaf"), create=True), missing("fixed->fixed", "root.leaf.x", last("Leaf"))),
        (fixed("root.empty.x.y", create=True), ""),
        # nothing of these can be told without an application
        (user(), ""),
        (user(tag(), create=True), ""),
        (fixed("nope", user()), ""),
        (tag(fixed("nope", user())), ""),
        # a full path has nothing above it
        (fixed("root.leaf", fixed("root.users")), "illegal fully qualified 'fixed' rule with value root.leaf"),
        (fixed("Root.leaf", fixed("users")), "illegal fully qualified 'fixed' rule with value Root.leaf"),
    ],
)  # fmt: skip
def test_what_a_rule_s_path_must_be(rule, expected):
    assert said(rule) == expected


def test_rules_are_counted_from_0_and_the_chain_is_printed_parent_first():
    rules = (user(create=True), fixed("leaf"), tag(user(fixed("root.users.new"))))
    assert said(*rules) == (
        "placement rule no. #2 (fixed->user->tag) references non-existing queues "
        "(root.users.new) and create is 'false'"
    )


def test_config_check_names_the_line_of_the_rule(tmp_path, capsys):
    file = tmp_path / "queues.yaml"
    file.write_text(
        "partitions:\n- name: default\n  placementrules:\n  - name: provided\n  - name: user\n"
        "    parent:\n      name: fixed\n      value: a\n  queues: [{name: root, queues: [{name: a}]}]\n"
    )
    assert check_files([file]) == 1
    assert capsys.readouterr().err == (
        f"{file}:5: placement rule no. #1 (fixed->user) references a queue (root.a) "
        "which is not a leaf\n"
    )
