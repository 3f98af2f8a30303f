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
    Exit.REFUSED: "refused: it is not there, not allowed, or not valid; the sentence says why",
    Exit.USAGE: "typed wrong: an option, a name, or a scenario file that is malformed",
    Exit.NO_ANSWER: "no answer: nothing at the API's address, or behind it in time, or no Muster; "
    "or a service is away, and what is shown is the last known state, with its age",
    Exit.WAITING: "handed in, and a service is away: it is carried out when that works again",
    Exit.NO_FILE: "a file that was named is not there, cannot be read, or is too long",
    Exit.CONFIGURATION: "`muster up` cannot start as configured: bus, port, queues.yaml, nodes",
    Exit.INTERRUPTED: "Ctrl-C, before it was done; `muster up` ends with 0 when it is stopped",
}
