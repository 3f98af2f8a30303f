"""What holds in a queues.yaml and is warned of."""

import pytest

from services.cli.config_check import check_files
from shared.queueconfig import load_configuration
from shared.queueconfig.warnings import warnings_of
from tests.builders import config_of


def said(text: str) -> str:
    return "\n".join(sentence for _, sentence in warnings_of(load_configuration(text)))


@pytest.mark.parametrize(
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
    assert "nobody may submit" in said(text)
    assert "nobody may submit" not in said(text.replace("name: a", "name: a, submitacl: bob"))


def test_another_partition_and_a_resolver():
    text = config_of("{name: a}").removesuffix("}]")
    text += ", usergroupresolver: {type: ldap}}, {name: gpu, queues: [{name: b}]}]"
    assert "partition gpu is read and not scheduled" in said(text)
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
