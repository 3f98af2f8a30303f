"""`muster config check`: YuniKorn's verdict on queues.yaml files, with file and line."""

from pathlib import Path

from services.cli.answers import Report
from services.cli.client import ApiError, Client, RefusedError
from services.cli.exits import Exit
from services.cli.files import bytes_of, text_of
from services.cli.said import complain, printable
from shared.queueconfig import QueueConfigError, load_configuration
from shared.queueconfig.validator import check_schedulable
from shared.queueconfig.warnings import warnings_of


def check_files(files: list[Path]) -> int:
    """Check files one by one; return 0 when all hold, else 1."""
    return max([_check(file) for file in files], default=0)


def _check(file: Path) -> int:
    try:
        text = text_of(file, may_be_stdin=True)
        config = load_configuration(text)
    except QueueConfigError as error:
        complain(f"{file}:{error.line}: {error.message}")
        return 1
    except OSError as error:
        complain(f"{file}: {error.strerror}")
        return Exit.REFUSED
    except UnicodeDecodeError as error:
        complain(f"{file}: not UTF-8: {error}")
        return Exit.REFUSED
    for line, sentence in warnings_of(config):
        complain(f"{file}:{line}: warning: {sentence}")
    try:
        check_schedulable(config)
    except QueueConfigError as error:
        said = f"{error.message} (said only when the file is loaded: it is refused then)"
        complain(f"{file}:{error.line}: warning: {said}")
    print(f"ok {printable(str(file))}")
    return 0


def apply_file(client: Client, file: Path) -> int:
    """Have a running Muster reload a file; return 0 when it holds now, else 1."""
    try:
        body = bytes_of(file, may_be_stdin=True)
    except OSError as error:
        complain(f"{file}: {error.strerror}")
        return Exit.REFUSED
    try:
        client.post("/v1/config", body)
    except RefusedError as error:
        complain(f"{file}: refused, nothing has changed: {error}")
        return error.exit_status
    except ApiError as error:
        complain(f"{file}: {error}")
        return error.exit_status
    print(f"{printable(str(file))} holds now")
    return 0


def shown_config(client: Client) -> Report:
    """Return the text that holds, to be kept in a file; what was refused since goes to stderr."""
    value = client.get("/v1/config")
    if value["error"]:
        said = f"refused since, nothing has changed: {value['error']}"
        complain(f"muster: {said}")
    for warning in value["warnings"]:
        complain(f"muster: warning: {warning}")
    text = value["text"] or "# no queues.yaml: YuniKorn's defaults hold"
    return Report(value, [text.rstrip("\n")], [value["checksum"]])
