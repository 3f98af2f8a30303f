"""A submission whose answer is not heard is sent again under the same key, and no other is."""

import pytest

from services.cli import client
from services.cli.exits import Exit

VERDICT = {"accepted": [], "refused": []}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(client, "_PAUSE_SECONDS", 0.0)


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text("kind: Pod\n")
    return str(path)


def test_what_was_lost_on_the_way_is_sent_again_under_its_key(api, muster, manifest):
    api.says("POST /v1/manifests", VERDICT)
    api.loses = 2
    assert muster("submit", "-f", manifest).status == 0
    assert len(api.keys) == 3
    assert len(set(api.keys)) == 1
    assert api.keys[0]


def test_what_was_not_answered_in_time_is_sent_again_and_at_last_told(api, muster, manifest):
    api.says("POST /v1/manifests", {"message": "no answer within 15 s"}, 504)
    run = muster("submit", "-f", manifest)
    assert run.status == Exit.NO_ANSWER
    assert "no answer within 15 s" in run.err
    assert len(api.keys) == 3
    assert len(set(api.keys)) == 1


def test_every_file_has_a_key_of_its_own_and_a_verdict_is_final(api, muster, manifest):
    api.says("POST /v1/manifests", {**VERDICT, "refused": []}, 422)
    muster("submit", "-f", manifest, "-f", manifest)
    assert len(api.keys) == len(set(api.keys)) == 2


def test_what_is_only_asked_has_no_key(api, muster):
    api.says("GET /v1/applications", [])
    muster("apps")
    assert set(api.keys) == {""}
