"""`muster completion SHELL`, and the names that completion offers."""

from typing import Annotated

import typer

from services.cli.options import COMPLETION, Shell

app = typer.Typer()


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell.")],
) -> None:
    """Print the completion of a shell.

    bash: muster completion bash > ~/.local/share/bash-completion/completions/muster

    zsh: muster completion zsh > a folder of $fpath, as _muster

    fish: muster completion fish > ~/.config/fish/completions/muster.fish
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="muster", complete_var=COMPLETION, shell=shell.value))
