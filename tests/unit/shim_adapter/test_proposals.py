"""Configurations in flight: each is judged by itself, and the last good one is never lost."""

import pytest

from services.core.configuration import parse_configuration
from services.shim_adapter.proposals import MAX_PROPOSALS
from shared.messages.commands import CommandResult
from shared.messages.envelope import SHIM_ADAPTER, Envelope
from shared.messages.interface import ConfigurationResult, UpdateConfiguration
from shared.messages.protocol import Heartbeat, SyncBegin, SyncRequest
from shared.model.checksum import checksum_of
from tests.builders import Core, config_of
from tests.unit.shim_adapter.test_machine import Shim

GOOD, BETTER = config_of("{name: a}"), config_of("{name: b}")
BAD = config_of("{name: 'no name'}")


def propose(shim, text, asker="api.x#1", message_id=None):
    """Propose a text; return the texts that go to the core, and the answers by asker."""
    return told(shim, UpdateConfiguration(text), asker, message_id)


def told(shim, message, asker="", message_id=None, epoch=None):
    shim.count += 1
    wrapped = Envelope(
        message_id or f"m{shim.count}",
        type(message).__name__,
        message,
        SHIM_ADAPTER,
        "t",
        epoch=shim.world.epoch if epoch is None else epoch,
        reply_to=asker,
    )
    out = shim.machine.handle(wrapped, shim.now)
    shim.machine.flush(shim.now)
    proposed = [
        item.message.config for item in out if isinstance(item.message, UpdateConfiguration)
    ]
    answers = [
        (item.reply_to, item.message.done, item.message.message)
        for item in out
        if isinstance(item.message, CommandResult)
    ]
    return proposed, answers


def verdict(text, error=""):
    return ConfigurationResult(not error, checksum_of(text), error)


@pytest.mark.parametrize("first", ["good", "bad"])
def test_two_configurations_in_flight_are_each_answered_for_what_they_are(first):
    shim = Shim(config=BETTER)
    told(shim, verdict(BETTER))
    texts = [GOOD, BAD] if first == "good" else [BAD, GOOD]
    for at, text in enumerate(texts):
        assert propose(shim, text, f"api.x#{at}") == ([text], [])
    answers = []
    for text in texts:
        answers += told(shim, verdict(text, "no good" if text == BAD else ""))[1]
    good, bad = texts.index(GOOD), texts.index(BAD)
    assert sorted(answers) == sorted(
        [(f"api.x#{good}", True, ""), (f"api.x#{bad}", False, "no good")]
    )
    assert shim.world.config == GOOD
    begin = shim.send(SyncRequest("core"))[0]
    assert (begin.config, begin.last_good) == (GOOD, BETTER)


def test_a_verdict_that_comes_again_or_is_of_no_open_proposal_changes_nothing():
    shim = Shim(config=BETTER)
    propose(shim, GOOD, message_id="one")
    assert told(shim, verdict("something else"))[1] == []
    assert told(shim, verdict(GOOD), epoch=0)[1] == []
    answers = told(shim, verdict(GOOD), message_id="verdict")[1]
    assert answers == [("api.x#1", True, "")]
    assert told(shim, verdict(GOOD))[1] == []
    assert told(shim, verdict(GOOD), message_id="verdict")[1] == answers
    assert propose(shim, GOOD, message_id="one") == ([], answers)
    assert shim.world.config == GOOD


def test_what_is_not_judged_outlives_a_crash_and_is_proposed_again_in_order(tmp_path):
    shim = Shim(config=BETTER, state_dir=tmp_path)
    told(shim, verdict(BETTER))
    propose(shim, GOOD, "api.x#1", "one")
    propose(shim, BAD, "api.x#2", "two")
    shim.machine = shim.service.make_machine()
    assert told(shim, Heartbeat("h"))[0] == [GOOD, BAD]
    assert propose(shim, GOOD, "api.x#1", "one") == ([], [])  # redelivered: it is known
    assert told(shim, verdict(BAD, "no good"))[1] == [("api.x#2", False, "no good")]
    assert told(shim, verdict(GOOD))[1] == [("api.x#1", True, "")]
    shim.machine = shim.service.make_machine()
    begin = shim.send(SyncRequest("core"))[0]
    assert (begin.config, begin.last_good) == (GOOD, BETTER)
    assert propose(shim, GOOD, "api.x#1", "one") == ([], [("api.x#1", True, "")])
    shim.service.close()


def test_what_was_accepted_and_saved_but_not_answered_is_answered_when_it_comes_again(tmp_path):
    shim = Shim(config=BETTER, state_dir=tmp_path)
    propose(shim, GOOD, "api.x#1", "one")
    told(shim, verdict(GOOD), message_id="verdict", epoch=1)  # and its answer is never published
    shim.machine = shim.service.make_machine()
    told(shim, Heartbeat("h"))
    assert told(shim, verdict(GOOD), message_id="verdict", epoch=1)[1] == [("api.x#1", True, "")]
    shim.service.close()


def test_the_line_is_bounded_and_of_a_watched_file_the_latest_text_is_kept():
    shim = Shim(config=BETTER)
    texts = [config_of("{name: q%d}" % at) for at in range(MAX_PROPOSALS)]
    for text in texts:
        assert propose(shim, text)[0] == [text]
    proposed, ((_, is_done, why),) = propose(shim, GOOD)
    assert (proposed, is_done) == ([], False)
    assert f"{MAX_PROPOSALS} queue configurations already wait" in why
    for text in (GOOD, BAD, BETTER):
        assert propose(shim, text, asker="") == ([], [])
    proposed, _ = told(shim, verdict(texts[0]))
    assert proposed == [BETTER]
    assert len(shim.world.proposals) == MAX_PROPOSALS


def test_settings_come_with_the_configuration_that_brings_them():
    shim = Shim(config=BETTER)
    update = UpdateConfiguration(BAD, {"policy": "kai"})
    told(shim, update)
    told(shim, verdict(BAD, "no good"))
    assert shim.world.scheduler_settings == {}
    told(shim, UpdateConfiguration(GOOD, {"policy": "kai"}))
    told(shim, verdict(GOOD))
    assert shim.world.scheduler_settings == {"policy": "kai"}


# --- the core's side ----------------------------------------------------------------------------


def verdicts(core):
    return [a.message for a in core.answers if isinstance(a.message, ConfigurationResult)]


def test_a_verdict_has_the_checksum_of_the_text_that_it_judges():
    core = Core(GOOD)
    core.send(UpdateConfiguration(BAD))
    core.send(UpdateConfiguration(BETTER))
    found = [(item.accepted, item.checksum) for item in verdicts(core)]
    texts = [(True, GOOD), (False, BAD), (True, BETTER)]
    assert found == [(is_good, checksum_of(text)) for is_good, text in texts]
    assert parse_configuration(GOOD).checksum == checksum_of(GOOD)


def test_a_recovery_with_a_bad_configuration_falls_back_to_the_last_good_one_and_says_so():
    core = Core()
    core.epoch = 2
    core.send(SyncBegin(BAD, (), GOOD))
    assert "root.a" in core.partition.queues
    assert "the last good configuration stays in use" in core.partition.config_error
    refused, holds = verdicts(core)[-2:]
    assert (refused.accepted, refused.checksum) == (False, checksum_of(BAD))
    assert "invalid queue name" in refused.error
    assert holds == verdict(GOOD)
    assert "the last good configuration stays in use" in core.partition.config_error


def test_a_stored_text_that_is_refused_stays_beside_the_good_one_until_a_better_one_comes():
    shim = Shim(config=BETTER)
    told(shim, verdict(BETTER))
    propose(shim, GOOD)
    told(shim, verdict(GOOD))
    shim.send(SyncRequest("core"))
    told(shim, verdict(GOOD, "a newer core refuses it"))
    assert shim.machine.proposals.error == "a newer core refuses it"
    begin = shim.send(SyncRequest("core"))[0]
    assert (begin.config, begin.last_good) == (GOOD, BETTER)
    newest = config_of("{name: c}")
    propose(shim, newest)
    told(shim, verdict(newest))
    begin = shim.send(SyncRequest("core"))[0]
    assert (begin.config, begin.last_good) == (newest, BETTER)
