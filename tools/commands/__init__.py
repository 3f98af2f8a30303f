"""The commands of the tools, a file each, as those in `services/cli/commands` are."""

from tools.commands import replay, scenario, simulate

COMMANDS = (scenario.app, replay.app, simulate.app)
