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
