"""Values that YAML cannot make are the sender's mistake: a sentence, never a traceback."""

import pytest

from services.api.documents import DocumentsError, read_documents

DIGITS = "9" * 5_000
ODD = ["!!timestamp x", "!!bool 7", "!!int x", "!!float x", "2024-13-45", "2024-02-30T25:61:61Z"]
LONG = [DIGITS, f"!!int {DIGITS}", "0x" + "f" * 9_000, f"[{DIGITS}]"]


@pytest.mark.parametrize("value", ODD + LONG, ids=[*ODD, "digits", "tagged", "hex", "listed"])
def test_it_is_refused_where_it_stands(value):
    with pytest.raises(DocumentsError) as refused:
        read_documents(f"kind: Pod\n---\na: {value}\n".encode(), "f")
    assert refused.value.index == 2


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
