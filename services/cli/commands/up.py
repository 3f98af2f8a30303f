"""`muster up`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from services.cli.exits import Exit
from services.cli.options import CAPACITY
from services.cli.said import complain

app = typer.Typer()

BusUrl = Annotated[
    str, typer.Option("--bus", metavar="URL", help="memory, or amqp://user:password@host/")
]
Demo = Annotated[bool, typer.Option("--demo", help="Submit the demo's applications.")]
Once = Annotated[bool, typer.Option("--once", help="Exit once every application has ended.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Queues: queues.yaml, ConfigMap, values; watched."
    ),
]
Nodes = Annotated[
    str,
    typer.Option(
        "--nodes", metavar="N|FILE", help="Number of simulated nodes, or a file of nodes."
    ),
]
Capacity = Annotated[
    str,
    typer.Option(
        "--capacity",
        metavar="NAME=QUANTITY,…",
        help=f"What each node has [default: {CAPACITY}]",
        show_default=False,
    ),
]
Gpus = Annotated[
    int,
    typer.Option(
        "--gpus", metavar="N", help="Number of nvidia.com/gpu of each node.", min=0, max=1_000_000
    ),
]
Labels = Annotated[
    str,
    typer.Option(
        "--labels", metavar="NAME=VALUE,…", help="Labels of each node.", show_default=False
    ),
]
Racks = Annotated[
    int,
    typer.Option(
        "--racks", metavar="N", help="Group the nodes into so many racks.", min=0, max=100_000
    ),
]
Blocks = Annotated[
    int,
    typer.Option(
        "--blocks", metavar="N", help="Group the racks into so many blocks.", min=0, max=100_000
    ),
]
Levels = Annotated[
    str,
    typer.Option(
        "--levels",
        metavar="NAME=LABEL,…",
        help="Node labels that are the topology levels, widest first.",
        show_default=False,
    ),
]
Port = Annotated[
    int,
    typer.Option(
        "--port", metavar="PORT", help="Port of the API; 0: a free one.", min=0, max=65_535
    ),
]
StateDir = Annotated[
    Path | None,
    typer.Option("--state-dir", metavar="FOLDER", help="Store the cluster's state in this folder."),
]
Prefix = Annotated[
    str, typer.Option("--prefix", metavar="NAME", help="Prefix of all names on the broker.")
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", metavar="FILE", help="Manage this cluster instead of a simulated one."
    ),
]
Plugins = Annotated[
    str,
    typer.Option("--plugins", metavar="NAME,…", help="Plugins for a new cluster."),
]


From = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Start from a file of `muster snapshot`."),
]


class Preset(StrEnum):
    """When a gang starts, and what it holds until then."""

    MUSTER = "muster"
    DESIGN = "design"
    YUNIKORN = "yunikorn"


PresetOption = Annotated[
    Preset, typer.Option("--preset", help="When gangs start: all at once, or as in YuniKorn.")
]


@app.command()
def up(
    bus: BusUrl = "memory",
    demo: Demo = False,
    once: Once = False,
    config: Config = None,
    nodes: Nodes = "20",
    capacity: Capacity = "",
    gpus: Gpus = 0,
    labels: Labels = "",
    racks: Racks = 0,
    blocks: Blocks = 0,
    levels: Levels = "",
    port: Port = 9080,
    state_dir: StateDir = None,
    prefix: Prefix = "muster",
    kubeconfig: Kubeconfig = None,
    plugins: Plugins = "",
    preset: PresetOption = Preset.MUSTER,
    snapshot: From = None,
) -> None:
    """Run all of Muster here, with a simulated cluster."""
    taken = dict(locals())
    try:
        from services.cli.up import UpOptions, run_up

        status = run_up(UpOptions(**taken))
    except KeyboardInterrupt:  # while it is imported, or checks its options
        complain("muster up: stopped before it was up")
        status = Exit.INTERRUPTED
    raise typer.Exit(status)
