"""Whether nobody reads an inbox, as a standby sees it by how many messages wait."""

import pytest

from shared.model.units import seconds
from shared.runtime.unread import Unread


def first_seen(waiting, *, beats=60):
    """Return after how many heartbeats nobody reads, by how many wait then; None: never."""
    unread = Unread(seconds(1), seconds(9))
    for beat in range(1, beats + 1):
        if unread.put_in() and unread.saw(waiting(beat)):
            return beat
    return None


@pytest.mark.parametrize("others", [0, 1, 40])
def test_what_nobody_has_read_from_the_start_is_seen_in_one_period(others):
    assert first_seen(lambda beat: others + beat) == 9


@pytest.mark.parametrize("until", range(3, 20))
def test_nobody_who_stops_reading_is_seen_later_than_one_period_after(until):
    """Two thirds of it at least: three looks in a row say the same."""
    found = first_seen(lambda beat: max(0, beat - until))
    assert 6 <= found - until <= 9


def test_heartbeats_that_are_on_their_way_to_a_reader_are_no_sign():
    assert first_seen(lambda beat: 1) is None
    assert first_seen(lambda beat: beat % 3) is None


def test_what_becomes_less_is_read():
    assert first_seen(lambda beat: 10_000 - beat) is None


def test_heartbeats_that_expire_unread_still_say_that_nobody_reads():
    assert first_seen(lambda beat: 30) == 9


def test_what_came_begins_the_count_again():
    unread = Unread(seconds(1), seconds(9))
    for beat in range(1, 60):
        if beat % 8 == 0:
            unread.forget()
        assert not (unread.put_in() and unread.saw(beat))


def test_heartbeats_further_apart_than_looks_are_each_a_look():
    unread = Unread(seconds(5), seconds(9))
    assert [unread.put_in() and unread.saw(beat) for beat in (1, 2, 3)] == [False, False, True]
