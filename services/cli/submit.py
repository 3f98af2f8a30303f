"""`muster submit` and `muster delete -f`: files to the API, and its verdict on every document."""

from pathlib import Path
from typing import Any

from services.cli.answers import as_text
from services.cli.client import ApiError, Client, UnheardError
from services.cli.exits import Exit
from services.cli.files import bytes_of
from services.cli.options import Output
from services.cli.said import complain, printable


def submit_files(client: Client, files: list[Path], output: Output) -> int:
    """Submit files one by one; return what the worst of them comes to."""
    verdicts = [_send(client, file, "/v1/manifests") for file in files]
    if output in (Output.JSON, Output.YAML):
        print(as_text([verdict for verdict, _ in verdicts], output))
    else:
        for verdict, _ in verdicts:
            _print(verdict, "accepted", names_only=output is Output.NAME)
    return _ended(client, verdicts)


def delete_files(client: Client, files: list[Path]) -> int:
    """Delete what files describe, one by one; return what the worst of them comes to."""
    verdicts = [_send(client, file, "/v1/manifests/delete") for file in files]
    for verdict, _ in verdicts:
        _print(verdict, "deleted")
    return _ended(client, verdicts)


def _ended(client: Client, verdicts: list[tuple[dict[str, Any], Exit]]) -> Exit:
    """Return how it ends: the worst of the verdicts; what was handed in may have to wait."""
    worst = max(status for _, status in verdicts)
    if worst is not Exit.DONE or not client.away:
        return worst
    complain(f"muster: handed in; it is scheduled when all works again: {client.away}")
    return Exit.WAITING


def _send(client: Client, file: Path, path: str) -> tuple[dict[str, Any], Exit]:
    source = "stdin" if str(file) == "-" else str(file)
    try:
        body = bytes_of(file, may_be_stdin=True)
    except OSError as error:
        return _refusal(source, error.strerror or str(error)), Exit.NO_FILE
    try:
        value = client.judged("POST", path, body, {"source": source[-500:]})
    except ApiError as error:
        verdict = _refusal(source, str(error).removeprefix(f"{source}: "))
        return verdict | {"isUnheard": isinstance(error, UnheardError)}, error.exit_status
    return dict(value), Exit.REFUSED if value["refused"] else Exit.DONE


def _refusal(source: str, message: str) -> dict[str, Any]:
    refused = {"source": source, "document": 0, "field": "", "message": message}
    return {"accepted": [], "refused": [refused]}


def _print(verdict: dict[str, Any], done: str, *, names_only: bool = False) -> None:
    for item in verdict["accepted"]:
        if names_only:
            print(item["applicationID"])
            continue
        pods = f", {item['pods']} pods" if item["pods"] else ""
        what = f"{item['kind']} {item['name']} (application {item['applicationID']}{pods})"
        said = f"{done} {item['source']}: document {item['document']}: {what}"
        print(printable(said))
    for item in verdict["accepted"]:
        for warning in item.get("warnings", ()):
            complain(f"warning  {item['source']}: document {item['document']}: {warning}")
    for item in verdict["refused"]:
        where = f": document {item['document']}" if item["document"] else ""
        field = f": {item['field']}" if item["field"] else ""
        said = "no answer  " if verdict.get("isUnheard") else "refused  "
        complain(f"{said}{item['source']}{where}{field}: {item['message']}")
