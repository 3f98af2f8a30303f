"""`muster`: see `muster --help`. Heavy imports wait until a command needs them."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from services.cli.client import DEFAULT_URL, ApiError, Client

app = typer.Typer(
    help="Muster: a gang scheduler for batch and ML clusters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
scenario_app = typer.Typer(help="Scenario files: policy tests.", no_args_is_help=True)
app.add_typer(scenario_app, name="scenario")
config_app = typer.Typer(help="Queue configurations.", no_args_is_help=True)
app.add_typer(config_app, name="config")


class Output(StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"


Url = Annotated[str, typer.Option(envvar="MUSTER_API_URL", help="Where the API answers.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table or json")]
PARTITION = "/ws/v1/partition/default"


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


@app.command()
def submit(
    file: Annotated[list[Path], typer.Option("--file", "-f", help="A manifest; - is stdin.")],
    url: Url = DEFAULT_URL,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit manifests to the simulated cluster: pods, jobs and the workloads of many operators."""
    from services.cli.submit import submit_files

    raise typer.Exit(submit_files(Client(url), file, as_json=output is Output.JSON))


@app.command()
def delete(application: str, url: Url = DEFAULT_URL) -> None:
    """Delete an application and its pods."""
    Client(url).delete(f"/v1/applications/{application}")
    print(f"deleted {application}")


@app.command()
def apps(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show every application: its state, its gang's progress and what it waits for."""
    from services.cli import render

    value = Client(url).get("/v1/applications")
    if output is Output.JSON:
        render.print_json(value)
    else:
        render.console().print(render.applications_table(value))


@app.command(name="app")
def application(name: str, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show one application."""
    from services.cli import render

    value = Client(url).get(f"/v1/applications/{name}")
    if output is Output.JSON:
        render.print_json(value)
    else:
        render.application_lines(render.console(), value)


@app.command()
def nodes(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show the nodes."""
    from services.cli import render

    value = Client(url).get(f"{PARTITION}/nodes")
    if output is Output.JSON:
        render.print_json(value)
    else:
        render.console().print(render.nodes_table(value))


@app.command()
def queues(url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show the queue tree: limits, use, priority, and what holds each queue back."""
    from services.cli import render

    client = Client(url)
    value = client.get("/v1/queues")
    if output is Output.JSON:
        render.print_json(value)
    else:
        out = render.console()
        out.print(render.queues_table(value))
        render.configuration_lines(out, client.get("/v1/config"))


@app.command()
def trace(name: str, url: Url = DEFAULT_URL, output: OutputOption = Output.TABLE) -> None:
    """Show every message behind an application's decisions, in order."""
    from services.cli import render

    value = Client(url).get(f"/v1/trace/{name}")
    if output is Output.JSON:
        render.print_json(value)
    else:
        render.console().print(render.trace_table(value))


@scenario_app.command("run")
def scenario_run(
    files: Annotated[list[Path], typer.Argument(help="Scenario files.")],
    bus: Annotated[str, typer.Option(help="memory, or amqp://user:password@host/")] = "memory",
    speed: Annotated[
        float, typer.Option(help="On a broker: how much faster than real time.", min=0.001)
    ] = 1.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run scenario files: 0 all hold, 1 a step failed, 2 a file is malformed."""
    from services.cli.scenario.command import run_files

    raise typer.Exit(run_files(files, bus, speed, as_json=output is Output.JSON))


@config_app.command("check")
def config_check(
    files: Annotated[list[Path], typer.Argument(help="queues.yaml files; - is stdin.")],
) -> None:
    """Judge queues.yaml files by YuniKorn's rules: 0 all hold, 1 one does not."""
    from services.cli.config_check import check_files

    raise typer.Exit(check_files(files))


@config_app.command("apply")
def config_apply(
    file: Annotated[Path, typer.Argument(help="A queues.yaml; - is stdin.")],
    url: Url = DEFAULT_URL,
) -> None:
    """Reload the queue configuration of a running Muster; a bad file changes nothing."""
    from services.cli.config_check import apply_file

    raise typer.Exit(apply_file(Client(url), file))


def main() -> None:
    """Run the command line; a failure is one sentence on stderr and exit status 1."""
    try:
        app()
    except ApiError as error:
        print(f"muster: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
