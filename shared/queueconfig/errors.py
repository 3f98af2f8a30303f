"""The error of an invalid queue configuration."""


class QueueConfigError(ValueError):
    """A configuration is invalid. ``line`` counts from 1; 0 is unknown, and not shown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.message = message
        self.line = line
