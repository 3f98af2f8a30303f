"""`muster` and `kubectl muster`: the commands of `services/cli`, then those of the tools."""

from services.cli import kubectl, program
from services.cli.commands import COMMANDS
from tools import commands

app = program.program_of((*COMMANDS, *commands.COMMANDS))


def main() -> None:
    """Run `muster`: see `muster --help`."""
    program.main(app)


def kubectl_main() -> None:
    """Run `kubectl muster`."""
    kubectl.main(app)


if __name__ == "__main__":
    main()
