"""The image and the compose file, checked by parsing: no Docker engine is asked."""

import asyncio
import importlib.util
import json
import os
import re
from pathlib import Path

import pytest
import yaml

from services.api.access.settings import access_of
from services.cli.secrets_made import make_secrets
from services.core.configuration import parse_configuration
from shared.bus.permissions import user_of
from shared.runtime.health import serve_health
from shared.runtime.settings import Settings, SettingsError, bus_url, load_settings

ROOT = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()
KNOWN = {f"MUSTER_{name}".upper() for name in Settings.model_fields}
SERVICES = ("core", "timers", "shim_adapter", "api")


def test_every_service_is_there_runs_its_module_and_waits_for_a_healthy_broker():
    assert set(COMPOSE["services"]) == {"secrets", "rabbitmq", *SERVICES}
    for name in SERVICES:
        service = COMPOSE["services"][name]
        assert service["command"] == ["python", "-m", f"services.{name}"]
        assert importlib.util.find_spec(f"services.{name}.__main__") is not None
        assert service["depends_on"] == {
            "rabbitmq": {"condition": "service_healthy"},
            "secrets": {"condition": "service_completed_successfully"},
        }
        assert "container_name" not in service  # which would forbid --scale
    assert "healthcheck" in COMPOSE["services"]["rabbitmq"]
    assert COMPOSE["services"]["rabbitmq"]["image"].startswith("rabbitmq:4")


def test_every_container_is_read_only_and_may_nothing():
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    assert COMPOSE["services"]["rabbitmq"]["user"] not in ("root", "0")


def test_every_variable_is_one_that_a_service_knows():
    used = set(re.findall(r"MUSTER_[A-Z_]+(?==)", DOCKERFILE))
    for name in SERVICES:
        used |= {
            key for key in COMPOSE["services"][name]["environment"] if key.startswith("MUSTER_")
        }
    assert used
    assert used <= KNOWN


def test_only_the_api_has_ports_and_enough_for_its_replicas():
    ports = {name: COMPOSE["services"][name].get("ports") for name in SERVICES}
    assert ports.pop("api") == ["127.0.0.1:9080-9089:9080"]  # of this machine alone
    assert set(ports.values()) == {None}
    assert "ports" not in COMPOSE["services"]["rabbitmq"]


def volumes_of(name):
    return dict(item.split(":")[:2] for item in COMPOSE["services"][name]["volumes"])


def test_nothing_has_a_default_password_and_each_secret_goes_to_whom_it_is_for():
    """The first container makes them; a service has the volume with its own, and reads it only."""
    text = (ROOT / "deploy/compose.yaml").read_text()
    assert not re.search(r"amqp://[^@\n]*:[^@\n]*@|PASS", text.replace("BUS_PASSWORD_FILE", ""))
    made = volumes_of("secrets")
    assert COMPOSE["services"]["secrets"]["command"] == ["muster", "secrets", "/secrets"]
    assert COMPOSE["services"]["secrets"]["network_mode"] == "none"
    for name in ("rabbitmq", *SERVICES):
        mine = [
            item for item in COMPOSE["services"][name]["volumes"] if item.startswith("secrets-")
        ]
        where = "/etc/rabbitmq/muster" if name == "rabbitmq" else "/run/muster"
        assert mine == [f"secrets-{name}:{where}:ro"]
        assert made[f"secrets-{name}"] == f"/secrets/{name}"
    for name in SERVICES:
        environment = COMPOSE["services"][name]["environment"]
        user = user_of("muster", name)
        assert environment["MUSTER_BUS_URL"] == f"amqp://{user}@rabbitmq:5672/"
        assert environment["MUSTER_BUS_PASSWORD_FILE"] == "/run/muster/bus-password"
        assert environment["MUSTER_BUS_TOPOLOGY"] == "given"


def test_the_api_asks_nobody_where_only_this_machine_reaches_it_and_else_everybody(tmp_path):
    make_secrets(tmp_path, "muster")
    assert "MUSTER_HTTP_HOST=0.0.0.0" in DOCKERFILE
    api = COMPOSE["services"]["api"]
    assert api["environment"]["MUSTER_AUTHENTICATION"] == "off"
    assert all(port.startswith("127.0.0.1:") for port in api["ports"])
    assert not access_of(Settings(http_host="0.0.0.0", authentication="off")).authenticators
    more = yaml.safe_load((ROOT / "deploy/compose.tokens.yaml").read_text())["services"]
    assert more == {
        "api": {
            "environment": {
                "MUSTER_AUTHENTICATION": "required",
                "MUSTER_TOKENS_FILE": "/run/muster/tokens",
            }
        }
    }
    tokens = tmp_path / "api/tokens"
    asking = Settings(http_host="0.0.0.0", authentication="required", tokens_file=tokens)
    assert access_of(asking).authenticators
    with pytest.raises(SettingsError):
        access_of(Settings(http_host="0.0.0.0"))


def test_every_volume_is_declared_and_every_file_is_there():
    for name in ("rabbitmq", *SERVICES):
        for volume in COMPOSE["services"][name].get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (ROOT / "deploy" / source).is_file()
            else:
                assert source in COMPOSE["volumes"]
    parse_configuration((ROOT / "deploy/queues.yaml").read_text())


def test_the_image_copies_what_exists_and_does_not_run_as_root():
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
    stages = DOCKERFILE.split("\nFROM ")
    assert "USER 10001" in stages[-1]


def health_check():
    """Return the command of the image's health check."""
    (command,) = re.findall(r"^HEALTHCHECK .*\\\n    CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    return json.loads(command)


async def asked(port):
    """Return whether the image's health check finds the service at a port healthy."""
    checking = await asyncio.create_subprocess_exec(
        *health_check(), env={"MUSTER_HEALTH_PORT": str(port)}, stderr=asyncio.subprocess.DEVNULL
    )
    return await checking.wait() == 0


async def test_the_health_check_asks_whether_the_service_is_ready():
    is_ready = True
    async with await serve_health("127.0.0.1", 0, lambda: is_ready) as server:
        port = server.sockets[0].getsockname()[1]
        assert await asked(port)
        is_ready = False
        assert not await asked(port)
    assert not await asked(port)


async def test_a_service_that_says_nothing_is_not_healthy():
    async def say_nothing(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        assert not await asked(server.sockets[0].getsockname()[1])


def test_no_health_check_starts_an_interpreter():
    """Nor a virtual machine of Erlang's; whoever runs containers by itself asks by a socket."""
    checks = {name: item.get("healthcheck") for name, item in COMPOSE["services"].items()}
    assert {name for name, check in checks.items() if check} == {"secrets", "rabbitmq"}
    assert checks["secrets"] == {"disable": True}
    for command in (health_check(), checks["rabbitmq"]["test"][1:]):
        assert command[:2] == ["bash", "-c"]  # every Debian image has it
        assert command[2].startswith("exec 3<>/dev/tcp/127.0.0.1/")
        assert not re.search(r"\$\(|`|\|\s|python|rabbitmq", command[2])  # and starts no other
    files = [*(ROOT / "deploy/kubernetes").rglob("*.yaml"), *(ROOT / "deploy/helm").rglob("*.yaml")]
    probes = [
        probe
        for path in files
        for probe in re.findall(r"(?:liveness|readiness|startup)Probe:\s+(\S+)", path.read_text())
    ]
    assert len(probes) == 36
    assert set(probes) == {"httpGet:", "tcpSocket:"}


def test_the_state_folder_of_the_image_is_writable_by_its_user():
    assert COMPOSE["services"]["shim_adapter"]["environment"]["MUSTER_STATE_DIR"].startswith(
        "/var/lib/muster"
    )
    assert "mkdir" in DOCKERFILE
    assert "chown" in DOCKERFILE


def test_an_unknown_variable_is_an_error(monkeypatch):
    for name in [name for name in os.environ if name.startswith("MUSTER_")]:
        monkeypatch.delenv(name)
    load_settings()
    monkeypatch.setenv("MUSTER_BUS_ULR", "x")
    with pytest.raises(SettingsError, match="unknown variable MUSTER_BUS_ULR"):
        load_settings()
    monkeypatch.delenv("MUSTER_BUS_ULR")
    monkeypatch.setenv("MUSTER_HTTP_PORT", "many")
    with pytest.raises(SettingsError, match="MUSTER_HTTP_PORT"):
        load_settings()


def test_no_broker_and_no_password_is_taken_for_granted(tmp_path):
    (tmp_path / "password").write_text("se/cret\n")
    with pytest.raises(SettingsError, match="MUSTER_BUS_URL is missing"):
        bus_url(Settings())
    named = {"bus_url": "amqp://core@there:1/v", "bus_password_file": tmp_path / "password"}
    assert bus_url(Settings(**named)) == "amqp://core:se%2Fcret@there:1/v"
    for wrong in ("amqp://there/", "amqp://core:given@there/"):
        with pytest.raises(SettingsError, match="a user without a password") as caught:
            bus_url(Settings(**{**named, "bus_url": wrong}))
        assert "given" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["POD_RUN_SECONDS", "POD_START_DELAY_MS", "RELEASE_DELAY_MS", "SIMULATED_NODE_MEMORY_BYTES"],
)
def test_a_number_that_no_record_holds_is_an_error(monkeypatch, name):
    monkeypatch.setenv(f"MUSTER_{name}", "9" * 20)
    with pytest.raises(SettingsError, match=f"MUSTER_{name}: Input should be less than or equal"):
        load_settings()
