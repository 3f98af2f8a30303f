"""What holds in a queues.yaml and is warned of."""

from services.cli.config_check import check_files
from shared.queueconfig import load_configuration
from shared.queueconfig.warnings import warnings_of
from tests.builders import config_of
from tests.table import each_row


def said(text: str) -> str:
    return "\n".join(sentence for _, sentence in warnings_of(load_configuration(text)))


@each_row(
    ("leaf", "warned"),
    [
        ("{name: a, properties: {priority.offset: '1000000000'}}", True),
        ("{name: a, properties: {priority.offset: '999999999'}}", False),
        ("{name: a, properties: {priority.offset: '2000000000', priority.policy: fence}}", True),
        ("{name: a, properties: {priority.offset: '1000', priority.policy: fence}}", False),
        (
            (
                "{name: p, properties: {priority.offset: '600000000'}, queues: "
                "[{name: a, properties: {priority.offset: '400000000'}}]}"
            ),
            True,
        ),
        (
            (
                "{name: p, properties: {priority.offset: '600000000'}, queues: "
                "[{name: a, properties: {priority.offset: '9', priority.policy: fence}}]}"
            ),
            False,
        ),
        ("{name: a, properties: {priority.offset: '-5'}}", False),
        ("{name: a, properties: {priority.offset: lots}}", False),
    ],
)
def test_an_offset_that_can_lift_above_the_system_classes(leaf, warned):
    assert ("system's own priority classes" in said(config_of(leaf))) is warned


def test_nobody_may_submit():
    text = "partitions: [{name: default, queues: [{name: root, queues: [{name: a}]}]}]"
    assert "no user may submit" in said(text)
    assert "no user may submit" not in said(text.replace("name: a", "name: a, submitacl: bob"))


def test_another_partition_and_a_resolver():
    text = config_of("{name: a}").removesuffix("}]")
    text += ", usergroupresolver: {type: ldap}}, {name: gpu, queues: [{name: b}]}]"
    assert "no user may submit" in said(text)  # in gpu
    assert "not scheduled" not in said(text)
    assert "usergroupresolver ldap is not asked" in said(text)


def test_config_check_prints_warnings_and_succeeds(tmp_path, capsys):
    file = tmp_path / "queues.yaml"
    rules = "placementrules:\n  - name: nosuch\n"
    file.write_text(
        "partitions:\n- name: default\n  queues: [{name: root, submitacl: '*'}]\n  "
        + rules.replace("\n  -", "\n  -")
    )
    assert check_files([file]) == 0
    out = capsys.readouterr()
    assert out.out == f"ok {file}\n"
    assert f"{file}:5: warning: unknown rule name specified nosuch" in out.err


def test_config_check_warns_of_a_file_that_is_valid_and_cannot_be_put_to_work(tmp_path, capsys):
    file = tmp_path / "queues.yaml"
    file.write_text("partitions: [{name: gpu, queues: [{name: root, submitacl: '*'}]}]")
    assert check_files([file]) == 0
    assert "warning: a partition named default is needed, found gpu" in capsys.readouterr().err


ROOT = "partitions: [{name: default, queues: [{name: Root, submitacl: '*', properties: {%s}}]}]"


@each_row(
    ("properties", "sentences"),
    [
        ("priority.offset: '5'", ["priority.offset 5 of root has no effect"]),
        ("priority.offset: '-2000000000'", ["priority.offset -2000000000 of root has no effect"]),
        ("priority.offset: '2000000000'", ["priority.offset 2000000000 of root has no effect"]),
        ("priority.policy: fence", ["priority.policy fence of root has no effect"]),
        ("preemption.policy: Fence", ["preemption.policy fence of root has no effect"]),
        (
            "priority.policy: fence, priority.offset: '1', preemption.policy: fence",
            [
                "priority.offset 1 of root has no effect",
                "priority.policy fence of root has no effect",
                "preemption.policy fence of root has no effect",
            ],
        ),
        ("priority.offset: '0', priority.policy: default", []),
        ("priority.offset: five, preemption.policy: disabled", []),
    ],
)
def test_what_only_siblings_would_see_says_nothing_on_the_root(properties, sentences):
    found = warnings_of(load_configuration(ROOT % properties))
    assert [line for line, _ in found] == [1] * len(sentences)
    for (_, sentence), expected in zip(found, sentences, strict=True):
        assert sentence.startswith(expected)


def test_below_the_root_they_mean_something_and_nothing_is_said():
    leaf = "{name: a, properties: {priority.offset: '5', priority.policy: fence, preemption.policy: fence}}"
    assert said(config_of(leaf)) == ""


def test_an_offset_of_the_root_lifts_nobody_above_the_system_classes():
    text = ROOT % "priority.offset: '2000000000'"
    text = text.replace("}}]}]", "}, queues: [{name: a, properties: {priority.offset: '1'}}]}]}]")
    assert "system's own" not in said(text)
