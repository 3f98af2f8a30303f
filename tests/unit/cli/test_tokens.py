"""A token goes with every request, is never shown, and what is wrong with it is a sentence."""

import re
import stat

import pytest

from services.api.access.tokens import read_tokens
from services.cli.exits import Exit

NEEDED = {"message": "this needs a token with the role read: send …", "status_code": 401}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "token"
    path.write_text("from-a-file\n")
    return path


@pytest.mark.parametrize(
    "typed",
    [
        ("apps",),
        ("delete", "x"),
        ("drain", "n"),
        ("undrain", "n"),
        ("events",),
        ("why", "x"),
        ("config", "show"),
        ("top", "nodes"),
        ("version",),
    ],
)
def test_every_command_names_who_asks(api, muster, typed, monkeypatch, file):
    muster(*typed)
    muster(*typed, "--token", "typed")
    muster(*typed, "--token", f"@{file}")
    monkeypatch.setenv("MUSTER_TOKEN", "of-the-environment")
    muster(*typed)
    muster(*typed, "--token", "typed")
    told = ["", "Bearer typed", "Bearer from-a-file", "Bearer of-the-environment", "Bearer typed"]
    assert api.tokens == told


def test_files_are_submitted_and_applied_under_the_name_of_who_asks(api, muster, tmp_path):
    (tmp_path / "a.yaml").write_text("kind: Pod\n")
    (tmp_path / "queues.yaml").write_text("partitions: []\n")
    for typed in (("submit", "-f", "a"), ("delete", "-f", "a"), ("config", "apply", "queues")):
        muster(*typed[:2], str(tmp_path / f"{typed[2]}.yaml"), "--token", "typed")
    assert set(api.tokens) == {"Bearer typed"}
    assert len(api.tokens) == 3


@pytest.mark.parametrize("status", [401, 403])
def test_the_api_s_own_sentence_says_what_is_needed(api, muster, status):
    api.says("GET /v1/applications", NEEDED, status)
    run = muster("apps")
    assert (run.status, run.out) == (1, "")
    assert run.err.strip() == f"muster: {NEEDED['message']}"


def test_a_proxy_that_asks_who_it_is_is_not_taken_for_a_stranger(api, muster):
    api.says_text("GET /v1/applications", "<h1>401</h1>", 401)
    run = muster("apps")
    assert run.status == 1
    assert "--token or MUSTER_TOKEN" in run.err


@pytest.mark.parametrize("token", ["two words", "tökén", "a\x07", "x" * 8_193])
def test_what_is_no_token_is_typed_wrong_and_not_repeated(api, muster, token, file):
    for given in (token, f"@{file}"):
        file.write_text(token)
        run = muster("apps", "--token", given)
        assert run.status == 2
        assert "a token has at most" in run.err.replace("\n", " ")
        assert token not in run.err
    assert api.tokens == []


def test_a_file_of_a_token_that_is_not_there_is_named(api, muster, tmp_path):
    run = muster("apps", "--token", f"@{tmp_path}/no")
    assert run.status == Exit.NO_FILE
    assert "No such file" in re.sub(r"[│\s]+", " ", run.err)
    (tmp_path / "no").write_text("\n")
    assert "empty" in muster("apps", "--token", f"@{tmp_path}/no").err


def test_a_new_token_is_printed_once_and_its_hash_is_what_the_api_reads(muster, tmp_path):
    run = muster("token", "ada", "--role", "operate")
    token, line = run.out.strip(), run.err.splitlines()[-1]
    assert re.fullmatch(r"muster_[A-Za-z0-9_-]{43}", token)
    assert token not in run.err
    (read,) = read_tokens(line.encode())
    assert (read.identity.name, read.identity.role.label) == ("ada", "operate")
    path = tmp_path / "tokens"
    first = muster("token", "ada", "--role", "submit", "--file", str(path)).out
    second = muster("token", "bo", "--file", str(path)).out
    assert first != second
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    roles = [
        (item.identity.name, item.identity.role.label) for item in read_tokens(path.read_bytes())
    ]
    assert roles == [("ada", "submit"), ("bo", "read")]


@pytest.mark.parametrize(("name", "role"), [("a b", "read"), ("a", "admin"), ("a", "open")])
def test_a_name_or_a_role_that_is_none_makes_no_token(muster, name, role, tmp_path):
    run = muster("token", name, "--role", role, "--file", str(tmp_path / "tokens"))
    assert (run.status, run.out) == (2, "")
    assert not (tmp_path / "tokens").exists()
