"""`muster up`."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def up(
    bus: Annotated[str, typer.Option(help="memory, or amqp://user:password@host/")] = "memory",
    demo: Annotated[bool, typer.Option("--demo", help="Submit the demo's applications.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Leave with 0 once every application has ended.")
    ] = False,
    config: Annotated[Path | None, typer.Option(help="A queues.yaml.")] = None,
    nodes: Annotated[int, typer.Option(help="Simulated nodes.", min=0, max=100_000)] = 20,
    port: Annotated[int, typer.Option(help="The API's port; 0 takes a free one.")] = 9080,
    state_dir: Annotated[Path | None, typer.Option(help="Keep the cluster's state here.")] = None,
    prefix: Annotated[str, typer.Option(help="Names on the broker start with this.")] = "muster",
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Look after this cluster's pods, not after simulated ones.")
    ] = None,
    plugins: Annotated[
        str, typer.Option(help="Plugins that a new cluster is scheduled with: NAME,NAME.")
    ] = "",
) -> None:
    """Run all four services in this process, with a simulated cluster or over a real one."""
    from services.cli.up import UpOptions, run_up

    options = UpOptions(
        bus, demo, once, config, nodes, port, state_dir, prefix, kubeconfig, plugins
    )
    raise typer.Exit(run_up(options))
