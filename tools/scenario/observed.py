"""What a scenario sees of the core."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Observed:
    """What the core has decided, as the resource manager heard it."""

    decisions: list[dict[str, Any]] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
