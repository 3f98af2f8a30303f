"""How long a host lets messages gather: no moment at rest, longer the more there is to do."""

from shared.model.units import milliseconds
from shared.runtime.spacing import MAX_PAUSE_NS, Spacing

BATCH_NS = milliseconds(5)


def busy(spacing, times=1, messages=3, spent_ns=BATCH_NS):
    """Take batches that were there when the one before was done; return the pauses."""
    pauses = []
    for _ in range(times):
        spacing.took(messages, idle_ns=0, spent_ns=spent_ns, is_full=False)
        pauses.append(spacing.pause_ns // milliseconds(1))
    return pauses


def test_at_rest_nothing_waits():
    spacing = Spacing(MAX_PAUSE_NS)
    for messages in (1, 2, 100):
        spacing.took(messages, idle_ns=2 * BATCH_NS, spent_ns=BATCH_NS, is_full=False)
        assert spacing.pause_ns == 0


def test_a_message_at_a_time_is_no_reason_to_wait_however_fast_they_come():
    assert busy(Spacing(MAX_PAUSE_NS), 5, messages=1) == [0] * 5


def test_the_pause_doubles_while_there_is_more_to_do_up_to_its_bound():
    assert busy(Spacing(MAX_PAUSE_NS), 6) == [1, 2, 4, 8, 8, 8]


def test_the_pause_is_no_longer_than_twice_what_a_batch_takes():
    assert busy(Spacing(MAX_PAUSE_NS), 5, spent_ns=milliseconds(1)) == [1, 2, 2, 2, 2]


def test_the_pause_halves_until_it_is_gone_once_messages_come_more_slowly():
    spacing = Spacing(MAX_PAUSE_NS)
    busy(spacing, 4)
    pauses = []
    for _ in range(5):
        spacing.took(1, idle_ns=2 * BATCH_NS, spent_ns=BATCH_NS, is_full=False)
        pauses.append(spacing.pause_ns // milliseconds(1))
    assert pauses == [4, 2, 1, 0, 0]


def test_behind_a_full_batch_nothing_waits_for_more():
    spacing = Spacing(MAX_PAUSE_NS)
    busy(spacing, 4)
    spacing.took(200, idle_ns=0, spent_ns=BATCH_NS, is_full=True)
    assert spacing.pause_ns == 0
    assert busy(spacing) == [8]


def test_a_host_that_may_not_pause_does_not():
    assert busy(Spacing(), 5) == [0] * 5
