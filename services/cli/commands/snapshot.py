"""`muster snapshot`."""

from typing import Annotated

import typer

from services.cli.client import DEFAULT_URL, Client
from services.cli.options import OnePartition, Token, Url
from shared.model.names import DEFAULT_PARTITION

app = typer.Typer()


@app.command()
def snapshot(
    hash_names: Annotated[
        bool, typer.Option("--hash-names", help="Hash names of pods, nodes, jobs, users.")
    ] = False,
    partition: OnePartition = DEFAULT_PARTITION,
    url: Url = DEFAULT_URL,
    token: Token = "",
) -> None:
    """Print the cluster as one file, to run it elsewhere.

    Nodes, queues, settings, applications and pods. `muster up --from FILE` runs on it, and so do
    `muster replay --from FILE` and a scenario with `from: FILE`. Names of queues are never hashed.
    """
    from services.cli.snapshot import snapshot_of

    print(snapshot_of(Client(url, token), partition, is_hashing=hash_names), end="")
