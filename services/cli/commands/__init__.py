"""The commands, one file each or a small group: what a command takes, and its help.

A file has an ``app`` (typer) with its commands; a name in ``typer.Typer(name=...)`` makes them a
group, as in ``muster config check``. Its line in COMMANDS puts it on the command line, in this
order; the commands of the tools come after them (``tools/main.py``). What a command does stands
elsewhere and is imported when it runs: ``muster --help`` is under 200 ms.
"""

from services.cli.commands import (
    apps,
    completion,
    config,
    dead_letters,
    delete,
    events,
    nodes,
    pods,
    queues,
    secrets,
    snapshot,
    submit,
    token,
    top,
    topology,
    trace,
    up,
    users,
    version,
    what_if,
    when,
    why,
)

COMMANDS = (
    up.app,
    submit.app,
    delete.app,
    apps.app,
    why.app,
    what_if.app,
    when.app,
    pods.app,
    nodes.app,
    topology.app,
    queues.app,
    users.app,
    top.app,
    events.app,
    trace.app,
    config.app,
    snapshot.app,
    dead_letters.app,
    token.app,
    secrets.app,
    completion.app,
    version.app,
)
