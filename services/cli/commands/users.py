"""`muster user NAME`."""

from typing import Annotated

import typer

from services.cli.answers import Report, shown, table
from services.cli.client import Client
from services.cli.options import OnePartition, asking, complete_users, in_partition, name_argument
from shared.model.names import DEFAULT_PARTITION

app = typer.Typer()
UserName = Annotated[str, name_argument("USER", "Their name.", complete_users)]


@app.command(name="user")
@shown
def user(client: Client, name: UserName, partition: OnePartition = DEFAULT_PARTITION) -> Report:
    """Show one user: use, limits, what waits, and why."""
    from services.cli.one import user_parts

    unknown = {"User not found": f"no user is called {name}; `muster top users` shows all"}
    found = client.get(in_partition(partition, "usage", "user", name), refusals=unknown)
    rows = client.get("/v1/applications", asking(partition))
    own = [row for row in rows if row.get("user") == name]
    found["overTime"] = client.get("/v1/usage", {**asking(partition), "user": name})
    names = [row["applicationID"] for row in own]
    return Report({**found, "applications": own}, user_parts(found, rows, table), names)
