"""`muster queues` and `muster queue PATH`."""

from typing import Annotated

import typer

from services.cli.answers import Listing, Report, shown, table
from services.cli.client import Client, RefusedError
from services.cli.options import OnePartition, asking, complete_queues, name_argument
from shared.model.names import DEFAULT_PARTITION

app = typer.Typer()


@app.command()
@shown
def queues(client: Client, partition: OnePartition = DEFAULT_PARTITION) -> Listing:
    """Show the queues: limits, use, what blocks each."""
    from services.cli.render import configuration_lines, queue_columns, queue_rows

    root = client.get("/v1/queues", asking(partition))
    beside = configuration_lines(client.get("/v1/config", asking(partition)))
    rows = queue_rows(root)
    return Listing(rows, queue_columns(rows), "queuename", whole=root, beside=[*beside])


@app.command()
@shown
def queue(
    client: Client,
    path: Annotated[str, name_argument("QUEUE", "Its path, or its name.", complete_queues)],
    partition: OnePartition = DEFAULT_PARTITION,
) -> Report:
    """Show one queue: limits, use, what waits, and why."""
    from services.cli.one import find_queue, queue_parts

    found = find_queue(client.get("/v1/queues", asking(partition)), path)
    if found is None:
        raise RefusedError(f"no queue is called {path}; `muster queues` shows all")
    if "usedOverTime" in found:
        usage = client.get("/v1/usage", {**asking(partition), "queue": found["queuename"]})
        found["overTime"] = usage
    rows = client.get("/v1/applications", asking(partition))
    return Report(found, queue_parts(found, rows, table), [found["queuename"]])
