"""The commands, one file each or a small group: what a command takes, and its help.

A file has an ``app`` (typer) with its commands; a name in ``typer.Typer(name=...)`` makes them a
group, as in ``muster config check``. Its line in COMMANDS puts it on the command line, in this
order. What a command does stands elsewhere and is imported when it runs: ``muster --help`` is
under 200 ms.
"""

from services.cli.commands import (
    apps,
    config,
    delete,
    nodes,
    queues,
    scenario,
    submit,
    trace,
    up,
)

COMMANDS = (
    up.app,
    submit.app,
    delete.app,
    apps.app,
    nodes.app,
    queues.app,
    trace.app,
    scenario.app,
    config.app,
)
