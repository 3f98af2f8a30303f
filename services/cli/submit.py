"""`muster submit`: files to the API, and its verdict on every document."""

import sys
from pathlib import Path
from typing import Any

from services.cli.client import ApiError, Client
from services.cli.render import print_json


def submit_files(client: Client, files: list[Path], *, as_json: bool) -> int:
    """Submit files one by one; return 0 when every document was accepted, else 1."""
    verdicts = [_submit(client, file) for file in files]
    if as_json:
        print_json(verdicts)
    else:
        for verdict in verdicts:
            _print(verdict)
    return 1 if any(verdict["refused"] for verdict in verdicts) else 0


def _submit(client: Client, file: Path) -> dict[str, Any]:
    source = "stdin" if str(file) == "-" else str(file)
    try:
        body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        return _refusal(source, error.strerror or str(error))
    try:
        status, value = client.post("/v1/manifests", body, {"source": source[-500:]})
    except ApiError as error:
        return _refusal(source, str(error))
    if status in (200, 422) and "refused" in value:
        return dict(value)
    return _refusal(source, value.get("message", f"the API answered {status}"))


def _refusal(source: str, message: str) -> dict[str, Any]:
    refused = {"source": source, "document": 0, "field": "", "message": message}
    return {"accepted": [], "refused": [refused]}


def _print(verdict: dict[str, Any]) -> None:
    for item in verdict["accepted"]:
        pods = f", {item['pods']} pods" if item["pods"] else ""
        what = f"{item['kind']} {item['name']} (application {item['applicationID']}{pods})"
        print(f"accepted {item['source']}: document {item['document']}: {what}")
    for item in verdict["refused"]:
        where = f": document {item['document']}" if item["document"] else ""
        field = f": {item['field']}" if item["field"] else ""
        print(f"refused  {item['source']}{where}{field}: {item['message']}", file=sys.stderr)
