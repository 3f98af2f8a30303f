"""queues.yaml: what is taken and what is refused, with where and why."""

import pytest

from services.core.configuration import parse_configuration
from services.core.scheduler.scheduler import ConfigurationError
from shared.messages.interface import ConfigurationResult, UpdateConfiguration
from shared.queueconfig import load_configuration
from shared.queueconfig.validator import MAX_PARTITIONS
from tests.builders import Core, config_of
from tests.table import each_row

HEAD = "partitions:\n  - name: default\n    queues:\n      - name: root\n        queues:\n"


def test_resources_are_integers_in_the_smallest_unit():
    config = parse_configuration(
        HEAD
        + "          - {name: A, resources: {max: {vcore: 500m, memory: 4Gi}, guaranteed: {vcore: 0}}}"
    )
    (queue,) = config.root.children
    assert queue.name == "a"
    assert queue.max_resource == {"vcore": 500, "memory": 4 * 1024**3}
    assert queue.guaranteed_resource is None


def test_several_top_queues_get_a_root_above_them():
    config = parse_configuration("partitions: [{name: default, queues: [{name: a}, {name: b}]}]")
    assert [child.name for child in config.root.children] == ["a", "b"]


@each_row(
    ("text", "message"),
    [
        ("{", "yaml: line 1"),
        ("[]", "cannot unmarshal !!seq into configs.SchedulerConfig"),
        ("partitions: []", "a partition named default is needed, found none"),
        ("partitions: [{name: default}]", "queue config is not set"),
        (
            "partitions: [{name: default, queues: [{name: root, maxApplications: 1}]}]",
            "field maxApplications not found in type configs.QueueConfig",
        ),
        (
            "partitions: [{name: default, queues: [{name: root}], placementrules: [{name: nosuch}]}]",
            "unknown rule name specified nosuch, failing placement rule config",
        ),
        (
            HEAD + "          - {name: a, childtemplate: {resources: {max: {memory: 1.5}}}}",
            "line 6: invalid quantity",
        ),
        (
            HEAD + "          - {name: a, childtemplate: {resources: {guaranteed: {memory: 5m}}}}",
            "line 6: invalid suffix",
        ),
        (
            "partitions: [{name: default, queues: [{name: root, resources: {max: {vcore: 1}}}]}]",
            "root queue must not have resource limits set",
        ),
        (
            HEAD + "          - {name: a, resources: {max: {memory: 1.5}}}",
            "line 6: invalid quantity",
        ),
        (HEAD + "          - {name: a, resources: {max: {memory: 5m}}}", "invalid suffix"),
        (
            HEAD + "          - {name: a, resources: {max: {memory: 9223372036854775808}}}",
            "overflow",
        ),
        (
            HEAD + "          - {name: a, resources: {max: {vcore: 1}, guaranteed: {vcore: 2}}}",
            "is larger than maximum resource",
        ),
        (
            HEAD
            + "          - {name: a, resources: {max: {vcore: 1}}, queues: [{name: b, resources: {max: {vcore: 2}}}]}",
            "max resource of parent",
        ),
        (
            HEAD + "          - {name: a}\n          - {name: A}",
            "duplicate child name found with name 'A', level 1",
        ),
        (
            HEAD + "          - {name: a, maxapplications: -1}",
            "cannot unmarshal !!int `-1` into uint64",
        ),
        (
            "partitions: [{name: default, nodesortpolicy: {type: x}, queues: [{name: root}]}]",
            "undefined policy: x",
        ),
        (
            "partitions: [{name: default, nodesortpolicy: {resourceweights: {vcore: -1.0}}, queues: [{name: root}]}]",
            "negative resource weight for vcore",
        ),
    ],
)
def test_a_bad_configuration_is_refused_with_where_and_why(text, message):
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text)
    assert message in str(caught.value)


def test_n_11_a_second_partition_gets_a_root_of_its_own():
    text = (
        "partitions: [{name: default, queues: [{name: root}]}, "
        "{name: gpu, queues: [{name: production}, {name: test}]}]"
    )
    gpu = load_configuration(text).partitions[1]
    assert [queue.name for queue in gpu.queues] == ["root"]
    assert [queue.name for queue in gpu.queues[0].queues] == ["production", "test"]
    for name, queues in (("default", []), ("gpu", ["production", "test"])):
        config = parse_configuration(text, name)
        assert [queue.name for queue in config.root.children] == queues
        assert (config.partitions, config.is_removed) == (("default", "gpu"), False)
    assert parse_configuration(text, "gone").is_removed


def test_a_file_holds_as_a_whole_and_warns_each_partition_of_its_own():
    head = "partitions: [{name: default, queues: [{name: root, submitacl: '*'}]}, {name: gpu, "
    with pytest.raises(ConfigurationError, match="unknown rule name specified nosuch"):
        parse_configuration(head + "queues: [{name: a}], placementrules: [{name: nosuch}]}]")
    nobody = head + "queues: [{name: a}]}]"
    assert parse_configuration(nobody).warnings == ()
    assert "no user may submit" in parse_configuration(nobody, "gpu").warnings[0]


def test_more_partitions_than_are_scheduled_are_refused():
    names = ["default", *(f"p{at}" for at in range(MAX_PARTITIONS))]
    text = "partitions:\n" + "".join(
        f"- {{name: {name}, queues: [{{name: a}}]}}\n" for name in names
    )
    with pytest.raises(ConfigurationError, match=f"{MAX_PARTITIONS + 1} partitions, at most"):
        parse_configuration(text)


def test_a_leaf_with_applications_becomes_no_parent_and_nothing_else_of_the_text_holds():
    core = Core(config_of("{name: a}", "{name: b}"))
    core.application("app", "root.a")
    wanted = config_of("{name: a, queues: [{name: below}]}", "{name: c}")
    core.send(UpdateConfiguration(wanted))
    (result,) = [
        item.message for item in core.answers if isinstance(item.message, ConfigurationResult)
    ][-1:]
    assert not result.accepted
    assert "queue root.a has 1 applications and cannot become a parent" in result.error
    assert sorted(core.partition.queues) == ["root", "root.a", "root.b"]
    core.check()
