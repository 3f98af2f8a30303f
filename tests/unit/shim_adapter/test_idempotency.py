"""Manifests that are sent again under one Idempotency-Key are carried out once."""

import json
from dataclasses import replace

import pytest

from services.shim_adapter.idempotency import USED
from services.shim_adapter.records import PodPhase
from shared.messages.commands import DeleteManifests, ManifestDocument, SubmitManifests
from shared.messages.envelope import SHIM_ADAPTER, Envelope
from tests.unit.shim_adapter.test_machine import Shim
from tests.unit.shim_adapter.test_redelivery import JOB


def manifests(*names, key="", kind=SubmitManifests):
    jobs = [{**JOB, "metadata": {**JOB["metadata"], "name": name}} for name in names]
    documents = [ManifestDocument("f", at, json.dumps(job)) for at, job in enumerate(jobs)]
    return kind(tuple(documents), idempotency_key=key)


@pytest.fixture
def ask(tmp_path):
    """Return what sends a command as a message of its own, and returns its verdict."""
    shim = Shim(state_dir=tmp_path)
    count = 0

    def send(command, *, asker="api.x#1"):
        nonlocal count
        count += 1
        kind = type(command).__name__
        said = shim.machine.handle(
            Envelope(f"q{count}", kind, command, SHIM_ADAPTER, "api", reply_to=asker), shim.now
        )
        shim.machine.flush(shim.now)
        (answer,) = [item.message for item in said if item.reply_to == asker]
        return answer

    send.shim = shim
    yield send
    shim.service.close()


def end_all(shim):
    """Have every pod run to its end, as pods of a second do before a client asks again."""
    for pod in list(shim.world.all_pods()):
        shim.machine.cluster._end(pod, PodPhase.SUCCEEDED)


def made(shim):
    return shim.world.pods_made


def test_the_same_key_is_answered_as_at_first_though_its_pods_have_ended(ask):
    first = ask(manifests("a", "b", key="k"))
    assert (len(first.accepted), made(ask.shim)) == (2, 2)
    end_all(ask.shim)
    assert ask(manifests("a", "b", key="k"), asker="api.other#9") == first
    assert made(ask.shim) == 2


def test_a_key_is_known_to_the_next_process_too(ask):
    first = ask(manifests("a", key="k"))
    end_all(ask.shim)
    ask.shim.machine.flush(1)
    ask.shim.machine = ask.shim.service.make_machine()
    assert ask(manifests("a", key="k")) == first
    assert made(ask.shim) == 1


def test_a_key_of_other_manifests_is_refused_and_changes_nothing(ask):
    ask(manifests("a", key="k"))
    verdict = ask(manifests("b", key="k"))
    assert [item.message for item in verdict.refused] == [USED]
    assert (verdict.accepted, made(ask.shim)) == ((), 1)
    assert ask(replace(manifests("a", key="k"), run_ns=5)).accepted  # how it runs is no other body


def test_a_key_of_a_submission_is_none_of_a_deletion(ask):
    ask(manifests("a", key="k"))
    deleted = ask(manifests("a", key="k", kind=DeleteManifests))
    assert [item.pods for item in deleted.accepted] == [1]
    assert ask(manifests("a", key="k", kind=DeleteManifests)) == deleted
    assert not ask(manifests("a", kind=DeleteManifests)).accepted


def test_without_a_key_names_that_have_ended_are_made_anew_and_those_that_live_are_refused(ask):
    ask(manifests("a", "b"))
    assert not ask(manifests("a", "b")).accepted
    end_all(ask.shim)
    assert len(ask(manifests("a", "b")).accepted) == 2
    assert made(ask.shim) == 4


def test_of_one_document_all_names_are_made_or_none(ask):
    workload = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "template": {"metadata": JOB["metadata"], "spec": JOB["spec"]},
        },
    }
    job = SubmitManifests((ManifestDocument("f", 1, json.dumps(workload)),))
    assert ask(job).accepted[0].pods == 2
    first = next(iter(ask.shim.world.all_pods()))
    ask.shim.machine.cluster._end(first, PodPhase.SUCCEEDED)
    assert not ask(job).accepted
    assert made(ask.shim) == 2
