"""`muster config check`: YuniKorn's verdict on queues.yaml files, with file and line."""

import sys
from pathlib import Path

from services.cli.answers import Report
from services.cli.client import ApiError, Client, RefusedError
from services.cli.exits import Exit
from shared.queueconfig import QueueConfigError, load_configuration
from shared.queueconfig.validator import check_schedulable
from shared.queueconfig.warnings import warnings_of


def check_files(files: list[Path]) -> int:
    """Check files one by one; return 0 when all hold, else 1."""
    return max([_check(file) for file in files], default=0)


def _check(file: Path) -> int:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        config = load_configuration(text)
    except QueueConfigError as error:
        print(f"{file}:{error.line}: {error.message}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{file}: {error.strerror}", file=sys.stderr)
        return Exit.REFUSED
    except UnicodeDecodeError as error:
        print(f"{file}: not UTF-8: {error}", file=sys.stderr)
        return Exit.REFUSED
    for line, sentence in warnings_of(config):
        print(f"{file}:{line}: warning: {sentence}", file=sys.stderr)
    try:
        check_schedulable(config)
    except QueueConfigError as error:
        said = f"{error.message} (said only when the file is loaded: it is refused then)"
        print(f"{file}:{error.line}: warning: {said}", file=sys.stderr)
    print(f"ok {file}")
    return 0


def apply_file(client: Client, file: Path) -> int:
    """Have a running Muster reload a file; return 0 when it holds now, else 1."""
    try:
        body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        print(f"{file}: {error.strerror}", file=sys.stderr)
        return Exit.REFUSED
    try:
        client.post("/v1/config", body)
    except RefusedError as error:
        print(f"{file}: refused, nothing has changed: {error}", file=sys.stderr)
        return error.exit_status
    except ApiError as error:
        print(f"{file}: {error}", file=sys.stderr)
        return error.exit_status
    print(f"{file} holds now")
    return 0


def shown_config(client: Client) -> Report:
    """Return the text that holds, to be kept in a file; what was refused since goes to stderr."""
    value = client.get("/v1/config")
    if value["error"]:
        said = f"refused since, nothing has changed: {value['error']}"
        print(f"muster: {said}", file=sys.stderr)
    for warning in value["warnings"]:
        print(f"muster: warning: {warning}", file=sys.stderr)
    text = value["text"] or "# no queues.yaml: YuniKorn's defaults hold"
    return Report(value, [text.rstrip("\n")], [value["checksum"]])
