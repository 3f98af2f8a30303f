"""Rules of queues.yaml that no file beside the project breaks, and what must never break us."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.queueconfig import QueueConfigError, load_configuration
from shared.queueconfig.warnings import warnings_of
from tests.table import each_row


def partition(queues="[{name: root}]", **more):
    rest = "".join(f", {key}: {value}" for key, value in more.items())
    return f"partitions: [{{name: default, queues: {queues}{rest}}}]"


def leaf(rest):
    return partition("[{name: root, queues: [{name: a, %s}]}]" % rest)


@each_row(
    ("text", "message"),
    [
        (leaf("adminacl: 'a b c'"), "multiple spaces found in ACL: 'a b c'"),
        (leaf("limits: [{limit: l, maxapplications: 1}]"), "empty user and group lists defined in limit '{l [] [] map[] 1}'"),
        (leaf("limits: [{users: [u]}]"), "invalid resource combination for limit  all resource limits are null"),
        (leaf("limits: [{users: [u, u], maxapplications: 1}]"), "duplicated user name 'u', already exists"),
        (leaf("limits: [{groups: ['*'], maxapplications: 1}]"), "should not specify only one group limit"),
        (leaf("limits: [{users: [''], maxapplications: 1}]"), "invalid limit user name '' in limit definition"),
        (leaf("limits: [{groups: [g, ''], maxapplications: 1}]"), "invalid limit group name '' in limit definition"),
        (leaf('limits: [{users: ["u\\n"], maxapplications: 1}]'), "invalid limit user name 'u\n' in limit definition"),
        (partition('[{name: root, queues: [{name: "a\\n"}]}]'), "invalid queue name, max 64 characters"),
        (leaf("childtemplate: {colour: 1}"), "field colour not found in type configs.ChildTemplate"),
        (leaf("resources: {guaranteed: 5}"), "cannot unmarshal !!int `5` into map[string]string"),
        (leaf("parent: perhaps"), "cannot unmarshal !!str `perhaps` into bool"),
        (leaf("maxapplications: 18446744073709551616"), "into uint64"),
        (leaf("name: b"), 'mapping key "name" already defined'),
        (partition(nodesortpolicy="fair"), "cannot unmarshal !!str `fair` into configs.NodeSortingPolicy"),
        (partition(nodesortpolicy="{type: odd}"), "undefined policy: odd"),
        (partition(placementrules="[{name: 1st}]"), "invalid rule name 1st, a name must be a valid identifier"),
        (partition(placementrules="[{name: user, filter: {type: maybe}}]"), "invalid rule filter type maybe, filter type  must be either '', allow or deny"),
        (partition(placementrules="[{name: user, parent: {name: 2nd}}]"), "invalid rule name 2nd"),
        (partition("[{name: root, queues: [{name: p, queues: [{name: l}]}]}]", placementrules="[{name: fixed, value: root.p}]"), "placement rule no. #0 (fixed) references a queue (root.p) which is not a leaf"),
        (partition("[{name: root, queues: [{name: l}]}]", placementrules="[{name: fixed, value: root.l.x, create: true}]"), "which cannot be created because the last queue (l) in the hierarchy is a leaf"),
        (partition(placementrules="[{name: user, parent: {name: fixed, value: root.q}}]"), "placement rule no. #0 (fixed->user) references non-existing queues (root.q) and create is 'false'"),
        (partition(placementrules="[{name: fixed, value: root.b, parent: {name: fixed, value: root.a}}]"), "illegal fully qualified 'fixed' rule with value root.b"),
        (partition("[{name: root, queues: [{name: p, resources: {guaranteed: {vcore: 1}}, queues: [{name: l, resources: {guaranteed: {vcore: 2}}}]}]}]"), "guaranteed resource of parent map[vcore:1000] is smaller than sum of guaranteed resources map[vcore:2000] of the children for queue p"),
        (partition("[{name: root, queues: [{name: p, maxapplications: 1, queues: [{name: l, maxapplications: 2}]}]}]"), "parent maxApplications must be larger than child maxApplications"),
        (partition("[{name: root, limits: [{users: [u], maxapplications: 5}], queues: [{name: leaf, limits: [{users: [u], maxapplications: 9}]}]}]"), "user u max applications 9 of queue leaf is greater than immediate or ancestor parent max applications 5"),
        (partition("[{name: root, limits: [{users: ['*'], maxresources: {memory: 5}}], queues: [{name: leaf, limits: [{users: [u], maxresources: {memory: 9}}]}]}]"), "user u max resource map[memory:9] of queue leaf is greater than wildcard maximum resource map[memory:5] of immediate or ancestor parent queue"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_yunikorn_s_words(text, message):
    with pytest.raises(QueueConfigError) as caught:
        load_configuration(text)
    assert message in caught.value.message


def limited(kind, parent, child):
    """Return a queue with a limit, and a leaf below it with one for the same name."""
    limit = f"{{{kind}s: [{kind}1], %s}}"
    return partition(
        f"[{{name: root, queues: [{{name: parent, limits: [{limit % parent}], "
        f"queues: [{{name: leaf, limits: [{limit % child}]}}]}}]}}]"
    )


@each_row("kind", ["user", "group"])
@each_row(
    ("parent", "child", "message"),
    [
        (
            "maxresources: {memory: 1000, vcore: 100}",
            "maxresources: {memory: 10000, vcore: 100}",
            (
                "{} max resource map[memory:10000 vcore:100000] of queue leaf is greater than immediate "
                "or ancestor parent maximum resource map[memory:1000 vcore:100000]"
            ),
        ),
        (
            "maxapplications: 50",
            "maxapplications: 90",
            (
                "{} max applications 90 of queue leaf is greater than immediate or ancestor parent max "
                "applications 50"
            ),
        ),
        (
            "maxapplications: 50",
            "maxresources: {memory: 1}",  # 0 is no limit, and more than 50
            (
                "{} max applications 0 of queue leaf is greater than immediate or ancestor parent max "
                "applications 50"
            ),
        ),
    ],
)
def test_c_05_a_limit_is_within_those_above_it(kind, parent, child, message):
    with pytest.raises(QueueConfigError) as caught:
        load_configuration(limited(kind, parent, child))
    assert caught.value.message == message.format(f"{kind} {kind}1")


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (
            "maxapplications: 100, limits: [{limit: one, users: [u], maxapplications: 1000}]",
            "invalid MaxApplications settings for limit one exceed current the queue MaxApplications",
        ),
        (
            (
                "resources: {max: {memory: 10000}}, "
                "limits: [{limit: one, users: [u], maxresources: {memory: 100000}}]"
            ),
            "invalid MaxResources settings for limit one exeecd current the queue MaxResources",
        ),
        (
            (
                "resources: {max: {memory: parseFailed}}, "
                "limits: [{limit: one, users: [u], maxresources: {memory: 1}}]"
            ),
            "parse queue a max resource failed: invalid quantity",
        ),
    ],
)
def test_c_04_a_limit_is_within_its_own_queue(rest, message):
    with pytest.raises(QueueConfigError) as caught:
        load_configuration(leaf(rest))
    assert caught.value.message == message


@pytest.mark.parametrize(
    "rest",
    [
        "maxapplications: 100, limits: [{limit: one, users: [u], maxapplications: 100}]",
        (
            "maxapplications: 100, resources: {max: {memory: 9}}, "
            "limits: [{limit: one, users: [u], maxresources: {memory: 9}}]"
        ),
    ],
)
def test_c_04_a_limit_that_is_within_or_says_nothing_of_applications_holds(rest):
    load_configuration(leaf(rest))


def test_every_wrong_key_is_told_at_once_with_its_line():
    with pytest.raises(QueueConfigError) as caught:
        load_configuration("partitions:\n  - name: default\n    one: 1\n    two: 2\n")
    assert caught.value.line == 3
    assert caught.value.message.count("not found in type configs.PartitionConfig") == 2


WRONG_IN_MANY_WAYS = """\
# a comment, so that no line is its place in the list

partitions:
  - name: default
    colour: red
    queues:
      - name: root
        parent: perhaps so or not
        queues:
          - name: a
            resources:
              max: 5
            maxapplications: -1
          - name: b
            name: c
            unheard: of
            name: d
          - name: e
            resources:
              max:
                vcore: 1
                memory: 2
                vcore: 3
    nodesortpolicy: fair
"""


def test_the_lines_inside_a_message_are_the_file_s_own():
    with pytest.raises(QueueConfigError) as caught:
        load_configuration(WRONG_IN_MANY_WAYS)
    assert caught.value.message.split("\n") == [
        "yaml: unmarshal errors:",
        "  line 5: field colour not found in type configs.PartitionConfig",
        "  line 8: cannot unmarshal !!str `perhaps...` into bool",
        "  line 12: cannot unmarshal !!int `5` into map[string]string",
        "  line 13: cannot unmarshal !!int `-1` into uint64",
        '  line 15: mapping key "name" already defined at line 14',
        '  line 17: mapping key "name" already defined at line 14',
        '  line 17: mapping key "name" already defined at line 15',
        '  line 23: mapping key "vcore" already defined at line 21',
        "  line 24: cannot unmarshal !!str `fair` into configs.NodeSortingPolicy",
    ]
    assert caught.value.line == 5


@each_row(
    ("text", "message"),
    [
        ("a: 1\nb: *\n", "yaml: line 2: did not find expected alphabetic or numeric character"),
        ('a: 1\n\nb: "c\n', "yaml: line 3: found unexpected end of stream"),
        ("a: 1\nb: c: d\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: 1\nb:\n  c: 1\n  - d\n", "yaml: line 3: did not find expected key"),
        ("a: 1\nb:\n  - c\n  d: 1\n", "yaml: line 3: did not find expected '-' indicator"),
        ("a: 1\nb: [1, 2\n", "yaml: line 2: did not find expected ',' or ']'"),
        ("a: 1\nb: {c: 1\n", "yaml: line 2: did not find expected ',' or '}'"),
        ("a: 1\nb: [1,\n", "yaml: line 3: did not find expected node content"),
    ],
)
def test_a_syntax_error_names_the_line_on_which_it_begins(text, message):
    with pytest.raises(QueueConfigError) as caught:
        load_configuration(text)
    assert caught.value.message == message
    assert f"line {caught.value.line}:" in message


def test_only_so_many_mistakes_are_told():
    with pytest.raises(QueueConfigError) as caught:
        load_configuration("x: 1\n" * 5_000)
    assert caught.value.message.count("\n") == 1_000


@each_row("text", ["", "# nothing\n", "---\n", "partitions: []", "checksum: abc"])
def test_an_empty_configuration_is_no_mistake(text):
    assert load_configuration(text).partitions == []


def test_partition_limits_are_the_root_s_where_it_has_none():
    config = load_configuration(partition(limits="[{users: [u], maxapplications: 2}]"))
    assert config.partitions[0].queues[0].limits[0].users == ["u"]


def test_a_bomb_and_a_tower_are_refused():
    names = "abcdefghi"
    bomb = "a: &a [1]\n" + "".join(
        f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip(names, names[1:], strict=False)
    )
    with pytest.raises(QueueConfigError):
        load_configuration(bomb)
    queues = "&q [{name: a}]"
    for _ in range(40):
        queues = "[{name: a, queues: %s}]" % queues
    load_configuration(partition(queues))
    with pytest.raises(QueueConfigError):
        load_configuration("partitions: " + "[" * 5000 + "]" * 5000)
    text = "partitions: [{name: default, queues: &q [{name: a}, {name: b, queues: *q}]}]"
    with suppress(QueueConfigError):
        load_configuration(text)


@given(st.text(alphabet="partions:nmeqlg [{}],-*&!'\"#\n\t01", max_size=120))
def test_no_text_fails_otherwise_than_with_a_configuration_error(text):
    with suppress(QueueConfigError):
        load_configuration(text)


@each_row(
    ("text", "error"),
    [
        ('partitions: [{name: "\\ud800"}]', "found invalid Unicode character escape code"),
        ('partitions: []\n"\\udfff": 1', "yaml: line 2: found invalid Unicode"),
        ('a: "\\U00110000"', "found invalid Unicode character escape code"),
        ("maxapplications: " + "9" * 5000, "cannot unmarshal"),
        ("maxapplications: 18446744073709551616", "cannot unmarshal"),
        ("maxapplications: ''", "cannot unmarshal"),
        ("resources: {max: {memory: '" + "9" * 5000 + "'}}", "invalid quantity: overflow"),
        ("properties: {priority.offset: '" + "9" * 5000 + "'}", ""),
    ],
)
def test_a_text_or_number_that_cannot_be_told_again_is_refused_with_its_line(text, error):
    if not text.startswith(("partitions", "a:")):
        queue = f"{{name: a, {text}}}"
        text = f"partitions: [{{name: default, queues: [{{name: root, queues: [{queue}]}}]}}]"
    if not error:
        assert warnings_of(load_configuration(text)) is not None
        return
    with pytest.raises(QueueConfigError) as caught:
        load_configuration(text)
    assert error in caught.value.message
    assert caught.value.message.encode()


@each_row("weight", [".inf", "nan", "-.inf", "1e400", ".NaN"])
def test_a_weight_is_a_number_that_can_be_counted_with(weight):
    sort = f"nodesortpolicy: {{type: fair, resourceweights: {{vcore: {weight}}}}}"
    with pytest.raises(QueueConfigError, match="cannot unmarshal"):
        load_configuration(f"partitions: [{{name: default, {sort}, queues: [{{name: root}}]}}]")


@each_row(
    ("text", "value"),
    [("yes", True), ("on", True), ("Y", True), ("'y'", True), ("True", True), ("no", False), ("off", False), ("~", False)],
)  # fmt: skip
def test_a_truth_is_what_yaml_v3_takes_for_one(text, value):
    """docs/rules/queues.md#where-it-comes-from: the parser is yaml.v3. "YAML 1.1 bools are supported" where one is asked for."""
    (queue,) = load_configuration(leaf(f"parent: {text}")).partitions[0].queues[0].queues
    assert queue.parent is value


@each_row(
    ("text", "value"),
    [("0x10", 16), ("017", 15), ("0o17", 15), ("0b11", 3), ("+5", 5), ("1_000", 1000), ("1e3", 1000), ("2.0", 2), ("08", 8), ("18446744073709551615", 2**64 - 1)],
)  # fmt: skip
def test_a_number_is_what_yaml_v3_takes_for_one(text, value):
    (queue,) = load_configuration(leaf(f"maxapplications: {text}")).partitions[0].queues[0].queues
    assert queue.maxapplications == value


@each_row(
    ("rest", "message"),
    [
        ("maxapplications: '10'", "cannot unmarshal !!str `10` into uint64"),
        ("maxapplications: yes", "cannot unmarshal !!str `yes` into uint64"),
        ("maxapplications: 1:30", "cannot unmarshal !!str `1:30` into uint64"),
        ("maxapplications: 1.5", "cannot unmarshal !!float `1.5` into uint64"),
        ("parent: 'true'", "cannot unmarshal !!str `true` into bool"),
        ("parent: 1", "cannot unmarshal !!int `1` into bool"),
        ("queues: 0o17", "cannot unmarshal !!int `0o17` into []configs.QueueConfig"),
        ("queues: 2026-11-22", "cannot unmarshal !!timestamp `2026-11-22` into"),
    ],
)
def test_what_yaml_v3_takes_for_neither_is_refused_with_its_type(rest, message):
    with pytest.raises(QueueConfigError) as caught:
        load_configuration(leaf(rest))
    assert message in caught.value.message


@pytest.mark.parametrize("text", [r"1\u00a0k", r"1\vk"])
def test_only_go_s_blanks_stand_between_a_number_and_its_unit(text):
    """docs/rules/queues.md#amounts: ``\\s*`` is Go's, ASCII; what is cut off at the ends is any white space."""
    amounts = 'resources: {max: {memory: "%s"}}'
    load_configuration(leaf(amounts % r"1\t\f k\u2003"))
    with pytest.raises(QueueConfigError, match="invalid quantity"):
        load_configuration(leaf(amounts % text))


MERGED = """\
partitions:
  - name: default
    queues:
      - &one {name: a, submitacl: x, properties: &p {priority.offset: "1", preemption.delay: 2s}}
      - {<<: *one, name: b, maxapplications: 2}
      - {<<: [{submitacl: first}, *one], name: c, properties: {<<: *p, priority.offset: "3"}}
"""


def test_a_map_is_merged_into_another_whose_own_keys_win():
    """yaml.v3 merges ``<<``: of several maps the first that has a key gives it."""
    a, b, c = load_configuration(MERGED).partitions[0].queues[0].queues
    assert [queue.submitacl for queue in (a, b, c)] == ["x", "x", "first"]
    assert (b.name, b.maxapplications, b.properties) == ("b", 2, a.properties)
    assert c.properties == {"priority.offset": "3", "preemption.delay": "2s"}


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("<<: 5", "map merge requires map or sequence of maps as the value"),
        ("<<: [[]]", "map merge requires map or sequence of maps as the value"),
        ("<<: {colour: red}", "field colour not found in type configs.QueueConfig"),
        ("<<: {maxapplications: -1}", "cannot unmarshal !!int `-1` into uint64"),
    ],
)
def test_what_is_merged_is_judged_like_everything_else(rest, message):
    with pytest.raises(QueueConfigError) as caught:
        load_configuration(leaf(rest))
    assert message in caught.value.message


def test_merges_are_counted_as_often_as_they_are_written_out():
    maps = ["&m0 {a0: b}"] + [f"&m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}" for n in range(1, 40)]
    text = "partitions: [{name: default, queues: [{name: root, properties: *m39}]}]"
    with pytest.raises(QueueConfigError):
        load_configuration(f"x: [{', '.join(maps)}]\n{text}")
    with suppress(QueueConfigError):
        load_configuration("partitions: [&a {<<: *a}]")
