"""`muster secrets` and `muster rabbitmq-permissions`."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()
Prefix = Annotated[
    str, typer.Option("--prefix", metavar="PREFIX", help="Prefix of all names on the broker.")
]


@app.command()
def secrets(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="Folder for them, one subfolder per service."),
    ] = None,
    kubernetes: Annotated[
        bool, typer.Option("--kubernetes", help="Print Secrets instead, for kubectl apply.")
    ] = False,
    prefix: Prefix = "muster",
) -> None:
    """Create the passwords and tokens of a deployment.

    Existing ones are kept.
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
        print(f"created {path}")


@app.command("rabbitmq-permissions")
def rabbitmq_permissions(
    prefix: Prefix = "muster",
    vhost: Annotated[str, typer.Option("--vhost", metavar="VHOST", help="The virtual host.")] = "/",
) -> None:
    """Print the broker permissions of the services' users."""
    from shared.bus.permissions import rabbitmqctl_lines

    print("\n".join(rabbitmqctl_lines(prefix, vhost)))
