"""YAML that strangers send: judged by its events, so that nothing deep or wide is ever built."""

import pytest
import yaml

from services.api.web.documents import MAX_DEPTH, MAX_NODES, DocumentsError, read_documents
from shared.model import bounded_yaml
from shared.model.bounded_yaml import YamlLimitError, compose_bounded
from shared.queueconfig import QueueConfigError, load_configuration
from shared.queueconfig import reader as queue_reader

DEEP = {
    "flow lists": "[" * 30_000,
    "flow maps": "{a: " * 30_000,
    "block lists": "- " * 30_000,
    "complex keys": "? " * 30_000,
    "closed": "[" * 30_000 + "]" * 30_000,
    "behind a document": "a: b\n---\n" + "[" * 30_000,
}


@pytest.fixture
def made(monkeypatch):
    """The nodes that were made: of a text that is too large, as many as the limits allow."""
    seen = []
    add = bounded_yaml._Composer._add

    def counted(*args):
        add(*args)
        seen.append(1)

    monkeypatch.setattr(bounded_yaml._Composer, "_add", counted)
    return seen


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_what_nests_too_deeply_is_refused_where_it_does(made, text):
    is_second = text.startswith("a: b")
    with pytest.raises(DocumentsError, match=f"nested deeper than {MAX_DEPTH}") as refused:
        read_documents(
            ("kind: Pod\n---\n" * is_second + text.removeprefix("a: b\n---\n")).encode(), "x"
        )
    assert refused.value.index == 1 + is_second
    assert len(made) <= 2 * MAX_DEPTH + 4
    made.clear()
    if not is_second:  # of a queues.yaml the first document is read
        with pytest.raises(QueueConfigError, match=f"nested deeper than {queue_reader.MAX_DEPTH}"):
            load_configuration(text)
        assert len(made) <= 2 * queue_reader.MAX_DEPTH + 1


def test_a_flat_list_of_too_many_is_refused_where_there_are_too_many(made):
    with pytest.raises(DocumentsError, match=f"more than {MAX_NODES} values"):
        read_documents(b"a: [" + b"a," * MAX_NODES + b"]", "x")
    assert len(made) == MAX_NODES
    many = "partitions: [" + "a," * queue_reader.MAX_VALUES + "]"
    made.clear()
    with pytest.raises(QueueConfigError, match=f"more than {queue_reader.MAX_VALUES} values"):
        load_configuration(many)
    assert len(made) == queue_reader.MAX_VALUES


def test_the_limits_are_inclusive_and_count_keys_values_maps_and_lists_of_all_documents():
    text = "a: [b, {c: d}]\n---\n[e]\n"  # map, a, list, b, map, c, d; list, e
    assert len(list(compose_bounded(text, depth=3, values=9))) == 2
    with pytest.raises(YamlLimitError, match="more than 8 values") as refused:
        list(compose_bounded(text, depth=3, values=8))
    assert (refused.value.line, refused.value.document) == (3, 2)
    with pytest.raises(YamlLimitError, match="nested deeper than 2"):
        list(compose_bounded(text, depth=2, values=9))


def test_what_is_nested_deeply_counts_for_more_since_each_token_costs_its_levels():
    text = "[" * 45 + "a" + "]" * 45
    counted = 20 * 1 + 20 * 2 + 5 * 3 + 3
    list(compose_bounded(text, depth=60, values=counted))
    with pytest.raises(YamlLimitError, match=f"more than {counted - 1} values"):
        list(compose_bounded(text, depth=60, values=counted - 1))


def test_what_is_no_yaml_is_the_composer_s_to_say():
    with pytest.raises(yaml.YAMLError):
        list(compose_bounded("a: [b", depth=9, values=9))
    with pytest.raises(yaml.YAMLError):
        list(compose_bounded("*a", depth=9, values=9))


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [" + "a," * 1_000 + "]\npartitions: [" + "*a," * 1_000 + "]",
        "partitions: [{name: d, queues: [{name: r, properties: &p {"
        + "".join(f"k{at}: v, " for at in range(1_000))
        + "}, queues: ["
        + "".join(f"{{name: q{at}, properties: *p}}, " for at in range(1_000))
        + "]}]}]",
    ],
)
def test_aliases_are_counted_by_what_they_stand_for(text):
    with pytest.raises(QueueConfigError, match="once its aliases are written out"):
        load_configuration(text)


LONG = "x" * 3_200
GROWING = {
    "a list": "a: &a [" + "b," * 300 + "]\nc: [" + "*a," * 1_000 + "]",
    "a list of lists": "a: &a [" + "b," * 300 + "]\nb: &b [*a, *a, *a]\nc: [" + "*b," * 300 + "]",
    "a long text": f"a: &a {LONG}\nc: [" + "*a," * 3_000 + "]",
    "a key": f"? &a {LONG}\n: b\nc: [" + "*a," * 3_000 + "]",
    "maps merged": "a: &a {" + "".join(f"k{at}: v, " for at in range(300)) + "}\nc: ["
    + "{<<: *a}," * 600 + "]",
}  # fmt: skip


@pytest.mark.parametrize("text", GROWING.values(), ids=GROWING)
def test_an_alias_counts_as_what_it_stands_for_before_anything_is_written_out(made, text):
    with pytest.raises(YamlLimitError, match="more than 250000 values once its aliases") as refused:
        list(compose_bounded(text, depth=60, values=MAX_NODES))
    assert refused.value.line == text.count("\n") + 1
    assert len(made) < 20_000


@pytest.mark.parametrize(
    "text", ["a: &a [*a]", "&a {b: {c: [*a]}}", "a: &a {<<: *a}", "- &a [[&b [*b]]]\n- *a"]
)
def test_what_holds_itself_is_refused_and_never_written_out(text):
    with pytest.raises(YamlLimitError, match="nested deeper than 60"):
        list(compose_bounded(text, depth=60, values=MAX_NODES))


def test_depth_is_that_of_what_is_written_out():
    text = "a: &a [[[x]]]\nb: [[*a]]"  # 6 deep in all: map, two lists, three lists
    assert len(list(compose_bounded(text, depth=6, values=99))) == 1
    with pytest.raises(YamlLimitError, match="nested deeper than 5"):
        list(compose_bounded(text, depth=5, values=99))
    again = "a: &a [x]\nb: &b [*a]\nc: &c [*b]\nd: [*c]"  # 5: map, and a list in a list ...
    assert len(list(compose_bounded(again, depth=5, values=99))) == 1
    with pytest.raises(YamlLimitError, match="nested deeper than 4"):
        list(compose_bounded(again, depth=4, values=99))


@pytest.mark.parametrize("values", [10, 150_000])
def test_what_is_wrong_far_behind_is_not_looked_for_twice(monkeypatch, values):
    """PyYAML's own scanner, which is slow, is asked for the line of what is near the beginning."""
    loaders, parse = [], yaml.parse

    def noted(text, Loader):  # noqa: N803 - PyYAML's own name
        loaders.append(Loader)
        return parse(text, Loader=Loader)

    monkeypatch.setattr(yaml, "parse", noted)
    with pytest.raises(QueueConfigError, match=f"line {values + 2}: did not find expected alpha"):
        load_configuration("- &a x\n" + "- *a\n" * values + "- *")
    assert (yaml.SafeLoader in loaders) == (values == 10)
