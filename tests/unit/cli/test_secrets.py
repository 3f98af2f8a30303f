"""Secrets are made at the first start, are random, and stay; nothing has a default."""

import base64
import hashlib
import json
import stat

import pytest
import yaml

from services.api.access.tokens import read_tokens
from shared.bus.permissions import permissions
from shared.messages.routes import SERVICES


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_what_is_missing_is_made_and_what_is_there_stays(muster, tmp_path):
    run = muster("secrets", str(tmp_path))
    assert run.status == 0
    first = files(tmp_path)
    assert sorted(first) == [
        "api/bus-password",
        "api/initial-token",
        "api/tokens",
        "core/bus-password",
        "rabbitmq/definitions.json",
        "rabbitmq/erlang-cookie",
        "shim_adapter/bus-password",
        "timers/bus-password",
    ]
    muster("secrets", str(tmp_path))
    again = files(tmp_path)
    definitions = json.loads(again.pop("rabbitmq/definitions.json"))
    assert again == {name: text for name, text in first.items() if not name.endswith(".json")}
    assert (
        definitions["permissions"] == json.loads(first["rabbitmq/definitions.json"])["permissions"]
    )
    (tmp_path / "core/bus-password").unlink()
    muster("secrets", str(tmp_path))
    assert files(tmp_path)["core/bus-password"] != first["core/bus-password"]


def test_no_two_are_alike_and_none_is_printed(muster, tmp_path):
    made = []
    for name in "ab":
        run = muster("secrets", str(tmp_path / name))
        found = files(tmp_path / name)
        made += [
            text.strip()
            for key, text in found.items()
            if any(word in key for word in ("password", "initial", "cookie"))
        ]
        assert not any(secret in run.out + run.err for secret in made)
    assert len(made) == len(set(made)) == 12
    assert all(len(secret) >= 43 for secret in made)


def test_the_first_token_is_what_the_file_of_tokens_knows(muster, tmp_path):
    muster("secrets", str(tmp_path))
    (line,) = read_tokens((tmp_path / "api/tokens").read_bytes())
    token = (tmp_path / "api/initial-token").read_text().strip()
    assert line.digest == hashlib.sha256(token.encode()).digest()
    assert (line.identity.name, line.identity.role.label) == ("initial", "operate")
    for path in tmp_path.rglob("*/*"):
        assert (
            stat.S_IMODE(path.stat().st_mode) == 0o644
        )  # a folder a container, which may not write


def test_the_definitions_hold_hashes_and_no_user_of_everybody_s(muster, tmp_path):
    muster("secrets", str(tmp_path), "--prefix", "team")
    text = (tmp_path / "rabbitmq/definitions.json").read_text()
    told = json.loads(text)
    assert [user["name"] for user in told["users"]] == [
        "team-core", "team-shim-adapter", "team-timers", "team-api",
    ]  # fmt: skip
    for service, user in zip(SERVICES, told["users"], strict=True):
        password = (tmp_path / service / "bus-password").read_text().strip()
        assert password not in text
        hashed = base64.b64decode(user["password_hash"])
        assert hashed[4:] == hashlib.sha256(hashed[:4] + password.encode()).digest()
        assert user["tags"] == ""
    assert {item["user"] for item in told["topic_permissions"]} == {
        item["user"] for item in told["permissions"]
    }
    configure = {item["user"]: item["configure"] for item in told["permissions"]}
    assert configure == {
        f"team-{service.replace('_', '-')}": permissions("team", service).configure
        for service in SERVICES
    }


def test_the_secrets_of_kubernetes_hold_the_same(muster):
    run = muster("secrets", "--kubernetes")
    told = {item["metadata"]["name"]: item["data"] for item in yaml.safe_load_all(run.out)}
    assert set(told) == {
        "broker",
        "bus-core",
        "bus-shim-adapter",
        "bus-timers",
        "bus-api",
        "api-tokens",
    }
    definitions = json.loads(base64.b64decode(told["broker"]["definitions.json"]))
    password = base64.b64decode(told["bus-core"]["password"])
    hashed = base64.b64decode(definitions["users"][0]["password_hash"])
    assert hashed[4:] == hashlib.sha256(hashed[:4] + password).digest()
    (line,) = read_tokens(base64.b64decode(told["api-tokens"]["tokens"]))
    token = base64.b64decode(told["api-tokens"]["initial-token"])
    assert line.digest == hashlib.sha256(token).digest()


@pytest.mark.parametrize("typed", [(), ("x", "--kubernetes")])
def test_it_is_one_or_the_other(muster, typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert muster("secrets", *typed).status == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(muster, tmp_path):
    (tmp_path / "file").write_text("")
    run = muster("secrets", str(tmp_path / "file"))
    assert run.status == 2
    assert "Not a directory" in run.err or "File exists" in run.err


def test_permissions_are_printed_as_commands(muster):
    run = muster("rabbitmq-permissions", "--prefix", "team", "--vhost", "/v")
    assert run.out.count("rabbitmqctl set_permissions -p /v team-") == 4
    assert run.out.count("rabbitmqctl set_topic_permissions -p /v team-") == 4
