"""`muster secrets` and `muster rabbitmq-permissions`."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
Prefix = Annotated[
    str, typer.Option("--prefix", metavar="PREFIX", help="What the names on the broker start with.")
]


@app.command()
def secrets(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[FOLDER]", help="Where they go, a folder a service.")
    ] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Print Secrets instead, for kubectl apply.")
    ] = False,
    prefix: Prefix = "muster",
) -> None:
    """Make a deployment's passwords and tokens, once.

    Those that are there stay.
    """
    from services.cli.secrets_made import kubernetes_secrets, make_secrets

    if (folder is None) is not kubernetes:
        raise typer.BadParameter("name a FOLDER, or --kubernetes")
    if folder is None:
        import yaml

        print(yaml.safe_dump_all(kubernetes_secrets(prefix), sort_keys=False), end="")
        return
    try:
        made = make_secrets(folder, prefix)
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}") from error
    for path in made:
        print(f"made {path}")


@app.command("rabbitmq-permissions")
def rabbitmq_permissions(
    prefix: Prefix = "muster",
    vhost: Annotated[str, typer.Option("--vhost", metavar="VHOST", help="Where it lives.")] = "/",
) -> None:
    """Print what the services' users may on a broker."""
    from shared.bus.permissions import rabbitmqctl_lines

    print("\n".join(rabbitmqctl_lines(prefix, vhost)))
