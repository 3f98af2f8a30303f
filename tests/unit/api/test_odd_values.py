"""Values that YAML cannot make are the sender's mistake: a sentence, never a traceback."""

import json

import pytest

from services.api.web.documents import DocumentsError, read_documents
from tests.table import each_row

DIGITS = "9" * 5_000
ODD = ["!!timestamp x", "!!bool 7", "!!int x", "!!float x", "!!set {a}", "{[a]: b}", ".nan"]
LONG = [f"!!int {DIGITS}", "!!int 1:30"]
TEXTS = [
    "1:30",
    "190:20:30.15",
    "yes",
    "Off",
    "2024-13-45",
    "2024-02-30",
    DIGITS,
    "0x" + "f" * 9_000,
]


@each_row("value", ODD + LONG)
def test_it_is_refused_where_it_stands(value):
    with pytest.raises(DocumentsError) as refused:
        read_documents(f"kind: Pod\n---\na: {value}\n".encode(), "f")
    assert refused.value.index == 2


@each_row("text", TEXTS)
def test_what_is_a_number_or_a_truth_in_yaml_1_1_only_is_text(text):
    (document,) = read_documents(f"kind: Pod\na: {text}\nb: !!str 7\n".encode(), "f")
    assert json.loads(document.body) == {"kind": "Pod", "a": text, "b": "7"}


def test_numbers_and_truths_are_those_of_go_s_yaml():
    body = b"{kind: Pod, a: [1_000, 0o17, 0b11, 1e3, -0x1F, true, ~, null, !!float 2, 2001-01-01]}"
    (document,) = read_documents(body, "f")
    assert json.loads(document.body)["a"] == [
        1000,
        15,
        3,
        1e3,
        -31,
        True,
        None,
        None,
        2.0,
        "2001-01-01",
    ]


def test_a_key_that_its_map_has_already_is_refused_as_an_api_server_does_it():
    text = "kind: Pod\n---\nkind: Job\nspec:\n  parallelism: 1\n  template: {}\n  parallelism: 2\n"
    with pytest.raises(DocumentsError) as refused:
        read_documents(text.encode(), "f")
    said = f"{refused.value.where}{refused.value}"
    assert said == 'document 2: line 7: mapping key "parallelism" already defined at line 5'


def test_a_key_in_two_maps_and_one_that_overrides_what_is_merged_are_no_repeats():
    text = "base: &b {a: 1, c: 2}\nkind: {<<: *b, a: 3}\nother: [{a: 1}, {a: 2}]\n"
    (document,) = read_documents(text.encode(), "f")
    assert '"kind": {"a": 3, "c": 2}' in document.body
