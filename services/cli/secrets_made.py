"""The secrets of a deployment: made once, with random bits, and then left as they are.

    FOLDER/rabbitmq/definitions.json   users with their passwords' hashes, permissions, topology
    FOLDER/rabbitmq/erlang-cookie      by which the brokers of a cluster know each other
    FOLDER/SERVICE/bus-password        of the service's user
    FOLDER/api/tokens                  who may: MUSTER_TOKENS_FILE
    FOLDER/api/initial-token           a first token, with the role operate

Each folder is for one container. A password and a token stay what they are once they are there; the
definitions are written again, for another version has other messages.
"""

import base64
import json
import secrets
from pathlib import Path
from typing import Any

from services.api.access.tokens import new_token
from shared.bus.permissions import definitions
from shared.messages.routes import SERVICES

_RANDOM_BYTES = 32
_READABLE = 0o644  # by the owner of the folder, which is given to no one else


def make_secrets(folder: Path, prefix: str) -> list[Path]:
    """Make what is missing in a folder; return what was made. Raises OSError."""
    made: list[Path] = []
    passwords = {}
    for service in SERVICES:
        path = folder / service / "bus-password"
        passwords[service] = _read_or_made(path, secrets.token_urlsafe(_RANDOM_BYTES), made)
    token, line = new_token("initial", "operate")
    if not (folder / "api" / "tokens").exists():  # the token first: its line counts
        (folder / "api" / "initial-token").unlink(missing_ok=True)
        _read_or_made(folder / "api" / "initial-token", token, made)
        _read_or_made(folder / "api" / "tokens", line, made)
    _read_or_made(folder / "rabbitmq" / "erlang-cookie", secrets.token_hex(_RANDOM_BYTES), made)
    path = folder / "rabbitmq" / "definitions.json"
    path.unlink(missing_ok=True)
    _read_or_made(path, _as_json(definitions(prefix, passwords)), made)
    return made


def _read_or_made(path: Path, text: str, made: list[Path]) -> str:
    """Return what a file has; where there is none, it is written whole, or not at all."""
    if path.exists():
        return path.read_text().strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    part.write_text(text if text.endswith("\n") else f"{text}\n")
    part.chmod(_READABLE)
    part.replace(path)
    made.append(path)
    return text


def kubernetes_secrets(prefix: str) -> list[dict[str, Any]]:
    """Return the same as Secrets, made again: what `deploy/kubernetes` expects to be there."""
    passwords = {service: secrets.token_urlsafe(_RANDOM_BYTES) for service in SERVICES}
    token, line = new_token("initial", "operate")
    broker = {
        "definitions.json": _as_json(definitions(prefix, passwords)),
        "erlang-cookie": secrets.token_hex(_RANDOM_BYTES),
    }
    of_services = {
        f"bus-{service.replace('_', '-')}": {"password": passwords[service]} for service in SERVICES
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
        }
        for name, data in {
            "broker": broker,
            **of_services,
            "api-tokens": {"tokens": line + "\n", "initial-token": token},
        }.items()
    ]


def _as_json(value: object) -> str:
    return json.dumps(value, indent=1)
