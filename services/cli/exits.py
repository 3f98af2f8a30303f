"""How a command ends: the exit status says what a script may do next."""

from enum import IntEnum


def status_of(error: BaseException, otherwise: "Exit") -> "Exit":
    """Return how a command ends by an error: NO_FILE where a file is its cause."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.filename is not None:
            return Exit.NO_FILE
        found = found.__cause__
    return otherwise


class Exit(IntEnum):
    """The exit statuses of every command; what each means stands in docs/cli.md by EXITS."""

    DONE = 0
    REFUSED = 1
    USAGE = 2  # typer's own
    NO_ANSWER = 3
    WAITING = 4
    NO_FILE = 66  # sysexits.h: EX_NOINPUT
    CONFIGURATION = 78  # sysexits.h: EX_CONFIG
    INTERRUPTED = 130  # a shell's own: 128 and SIGINT


EXITS = {
    Exit.DONE: "done; what was checked is valid",
    Exit.REFUSED: "refused: not found, not allowed or not valid; the message says why",
    Exit.USAGE: "usage error: an invalid option or name, or a malformed scenario file",
    Exit.NO_ANSWER: "no answer in time, or not from Muster; or a service is away, and the "
    "output is the last known state, with its age",
    Exit.WAITING: "accepted, but a service is away: it is carried out when the service is back",
    Exit.NO_FILE: "a file does not exist, cannot be read, or is too long",
    Exit.CONFIGURATION: "`muster up` cannot start as configured: bus, port, queues.yaml, nodes",
    Exit.INTERRUPTED: "interrupted by Ctrl-C; `muster up` ends with 0 when it is stopped",
}
