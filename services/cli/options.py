"""The options that several commands have, each said once."""

from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    """How answers are printed."""

    TABLE = "table"
    JSON = "json"


Url = Annotated[str, typer.Option(envvar="MUSTER_API_URL", help="Where the API answers.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table or json")]
PARTITION = "/ws/v1/partition/default"
