"""`muster config check`, `apply`, `diff`, `show`: queue configurations in the files people have."""

from pathlib import Path

from services.cli.answers import Report, table
from services.cli.client import ApiError, Client, RefusedError
from services.cli.config_diff import CHANGES, changes
from services.cli.exits import Exit, status_of
from services.cli.files import text_of
from services.cli.said import complain, printable
from services.cli.what_if import ask, what_if_parts
from services.shim_adapter.queue_file import QueueFile, queue_file
from shared.model.sentences import plain_text
from shared.model.service_keys import service_warnings
from shared.queueconfig import QueueConfigError, load_configuration
from shared.queueconfig.validator import check_schedulable
from shared.queueconfig.warnings import warnings_of


def check_files(files: list[Path]) -> int:
    """Check files one by one; return 0 when all hold, else 1."""
    return max([_check(file) for file in files], default=0)


def _check(file: Path) -> int:
    found = QueueFile("")
    try:
        found = queue_file(text_of(file, may_be_stdin=True))
        config = load_configuration(found.text)
    except QueueConfigError as error:
        complain(f"{_place(file, found, error.line)}: {plain_text(error.message)}")
        return 1
    except OSError as error:
        complain(f"{file}: {error.strerror}")
        return Exit.NO_FILE
    except UnicodeDecodeError as error:
        complain(f"{file}: not UTF-8: {error}")
        return Exit.REFUSED
    for line, sentence in warnings_of(config):
        complain(f"{_place(file, found, line)}: warning: {sentence}")
    try:
        check_schedulable(config)
    except QueueConfigError as error:
        said = f"{error.message} (the file is refused when it is loaded)"
        complain(f"{_place(file, found, error.line)}: warning: {said}")
    _warn_of_settings(file, found)
    if found.unread:
        names = ", ".join(found.unread)
        complain(f"{file}: warning: not read: {names}; service.policyGroup says which key is read")
    print(f"ok {printable(str(file))}{_within(found)}")
    return 0


def _warn_of_settings(file: Path, found: QueueFile) -> None:
    """Warn of scheduler settings beside the queues that do not hold."""
    if found.settings:
        from services.core.scheduler.model.settings import settings_from

        read = settings_from(found.settings.items())
        unused = service_warnings(tuple(found.settings.items()))
        for sentence in (*read.refused, *read.renamed, *unused):
            complain(f"{file}: warning: {sentence}")


def _place(file: Path, found: QueueFile, line: int) -> str:
    """Return where something is wrong: the file, its line, and the key that is read there."""
    return f"{file}:{found.line(line)}{_within(found)}"


def _within(found: QueueFile) -> str:
    return f" ({found.where})" if found.where else ""


def apply_file(client: Client, file: Path) -> int:
    """Have a running Muster reload a file; return 0 if it took effect, else 1."""
    try:
        found = queues_in(file)
    except RefusedError as error:
        complain(f"{file}: {error}")
        return status_of(error, error.exit_status)
    try:
        client.post("/v1/config", found.text.encode())
    except RefusedError as error:
        complain(f"{file}: refused, nothing has changed: {error}")
        return error.exit_status
    except ApiError as error:
        complain(f"{file}: {error}")
        return error.exit_status
    if found.settings:
        names = ", ".join(found.settings)
        complain(f"{file}: warning: {names} beside the queues: `muster up --config` reads them")
    print(f"{printable(str(file))}{_within(found)} is in use now")
    return 0


def queues_in(file: Path) -> QueueFile:
    """Return the queue configuration in a file. Raises RefusedError with why there is none."""
    try:
        return queue_file(text_of(file, may_be_stdin=True))
    except OSError as error:
        raise RefusedError(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise RefusedError(f"not UTF-8: {error}") from error
    except QueueConfigError as error:
        raise RefusedError(str(error)) from error


def diff_file(client: Client, file: Path) -> Report:
    """Return what a file would change, and for which applications. Raises RefusedError."""
    try:
        found = queues_in(file)
        rows = changes(client.get("/v1/config")["text"], found.text)
    except (RefusedError, QueueConfigError) as error:
        raise RefusedError(f"{file}: {plain_text(str(error))}") from error
    if not found.text.strip():
        raise RefusedError(f"{file}: it is empty")
    if not rows:
        return Report(
            {"changes": [], "whatIf": None}, [f"{file} is the configuration in use: no difference"]
        )
    answer = ask(client, None, found.text, {}, {})
    names = list(dict.fromkeys(row["queue"] for row in rows))
    parts = [table(rows, CHANGES), "", *what_if_parts(answer, table)]
    return Report({"changes": rows, "whatIf": answer}, parts, names)


def shown_config(client: Client) -> Report:
    """Return the text that holds, to be kept in a file; what was refused since goes to stderr."""
    value = client.get("/v1/config")
    if value["error"]:
        said = f"refused since, nothing has changed: {value['error']}"
        complain(f"muster: {said}")
    for warning in value["warnings"]:
        complain(f"muster: warning: {warning}")
    text = value["text"] or "# no queues.yaml: YuniKorn's defaults apply"
    return Report(value, [text.rstrip("\n")], [value["checksum"]])
