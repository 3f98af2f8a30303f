"""The API asks who somebody is, or it listens on its own machine alone, or somebody said so."""

import asyncio
import os
import sys
from hashlib import sha256

import pytest
from pydantic import ValidationError

from services.api.access.oidc import OidcTokens
from services.api.access.roles import Role
from services.api.access.settings import access_of, is_loopback
from services.api.access.tokens import TokensFile
from shared.runtime.settings import Settings, SettingsError
from tests.broker import free_port
from tests.table import each_row

OIDC = {"oidc_issuer": "https://issuer.example", "oidc_audience": "muster"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"ci submit {sha256(b'x').hexdigest()}\n")
    return path


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_this_machine_alone_nobody_has_to_be_asked(host):
    assert is_loopback(host)
    assert access_of(Settings(http_host=host)).authenticators == []


@each_row("host", ["0.0.0.0", "::", "10.0.0.1", "muster", "", "127.0.0.1.example"])
def test_elsewhere_it_does_not_start_without_knowing_who_may(host):
    with pytest.raises(SettingsError) as caught:
        access_of(Settings(http_host=host))
    for said in (
        "ask nobody",
        "MUSTER_TOKENS_FILE",
        "MUSTER_OIDC_ISSUER",
        "MUSTER_AUTHENTICATION=off",
    ):
        assert said in str(caught.value)


def test_to_ask_nobody_is_said_loudly(capsys):
    assert access_of(Settings(http_host="0.0.0.0", authentication="off")).authenticators == []


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_a_file_or_an_issuer_has_everybody_asked_wherever_it_listens(file, host):
    access = access_of(Settings(http_host=host, tokens_file=file, **OIDC))
    assert [type(item) for item in access.authenticators] == [TokensFile, OidcTokens]
    assert access.metrics is Role.READ
    assert access_of(Settings(tokens_file=file, metrics_access="open")).metrics is Role.OPEN


@each_row(
    ("more", "said"),
    [
        ({"authentication": "off"}, "AUTHENTICATION=off excludes"),
        ({"oidc_audience": ""}, "MUSTER_OIDC_AUDIENCE"),
        ({"oidc_issuer": "http://issuer.example"}, "MUSTER_OIDC_ISSUER: https://"),
        ({"oidc_issuer": "issuer.example"}, "MUSTER_OIDC_ISSUER: https://"),
        ({"oidc_keys": "http://issuer.example/keys"}, "MUSTER_OIDC_KEYS: https://"),
        ({"oidc_algorithms": "RS256,none"}, "MUSTER_OIDC_ALGORITHMS: 'none'"),
        ({"oidc_algorithms": "HS256"}, "MUSTER_OIDC_ALGORITHMS: 'HS256'"),
        ({"oidc_algorithms": ""}, "MUSTER_OIDC_ALGORITHMS: ''"),
        ({"oidc_roles": "admin=x"}, "MUSTER_OIDC_ROLES"),
        ({"oidc_roles": "read"}, "MUSTER_OIDC_ROLES"),
    ],
)
def test_what_does_not_hold_together_is_refused_with_the_variable(more, said):
    with pytest.raises(SettingsError, match=said):
        access_of(Settings(**{**OIDC, **more}))


def test_a_file_that_is_not_there_or_does_not_hold_is_named(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        access_of(Settings(tokens_file=tmp_path / "nowhere"))
    (tmp_path / "bad").write_text("ci submit\n")
    with pytest.raises(SettingsError, match="bad: line 1: expected NAME ROLE SHA256"):
        access_of(Settings(tokens_file=tmp_path / "bad"))


def test_no_setting_shows_a_secret(monkeypatch):
    assert "abc" not in repr(Settings(token="abc"))
    from shared.runtime.settings import load_settings

    for name in [name for name in os.environ if name.startswith("MUSTER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MUSTER_BUS_URL", "http://user:geheim@there/")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "geheim" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ValidationError)


async def test_a_service_that_would_let_everybody_in_ends_with_78_and_a_sentence():
    environment = {
        "PATH": os.environ["PATH"],
        "MUSTER_HTTP_HOST": "0.0.0.0",
        "MUSTER_BUS_URL": "amqp://127.0.0.1/",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "services.api", stderr=asyncio.subprocess.PIPE,
        env={**environment, "MUSTER_HTTP_PORT": str(free_port())},
    )  # fmt: skip
    _, said = await process.communicate()
    assert process.returncode == 78
    assert b"MUSTER_TOKENS_FILE" in said
    assert said.count(b"\n") == 1
