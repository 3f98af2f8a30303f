"""What reading many values costs, apart from the reading."""

import gc
from contextlib import suppress

import pytest

from services.api.web.documents import DocumentsError, read_documents


@pytest.mark.parametrize(
    "body", [b"a: [" + b"1," * 50_000 + b"1]", b"a: [" + b"1," * 400_000 + b"1]", b"a: ["]
)
def test_no_garbage_is_looked_for_while_many_values_are_read(body):
    """Each look costs as much as there is; and it goes on afterwards, read or refused."""
    looks = []
    gc.callbacks.append(lambda phase, _: looks.append(phase))
    try:
        with suppress(DocumentsError):
            read_documents(body, "s")
        during = len(looks)
    finally:
        gc.callbacks.pop()
    assert during <= 2  # a look that is due already when it begins, or when it has ended
    assert gc.isenabled()
