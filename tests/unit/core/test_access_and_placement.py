"""Who may submit, and to which queue: boundary cases of contract 1.6, 1.8, 1.10, 3.2 and 6.11."""

import pytest

from services.core.scheduler.model.access import parse_access


@pytest.mark.parametrize(
    ("text", "everybody"),
    [
        ("*", True),
        (" *", True),
        ("* ops", True),
        ("alice *", True),
        ("alice,*", False),
        ("alice dev,*", False),
        ("*,alice *,dev", False),
    ],
)
def test_a_wildcard_is_everybody_only_where_it_stands_alone(text, everybody):
    access = parse_access(text)
    assert access.allows("carol", ("qa",)) is everybody
    assert access.allows("alice", ()) is ("alice" in text or everybody)
