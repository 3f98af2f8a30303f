"""What is wrong with a queue configuration."""


class QueueConfigError(ValueError):
    """A configuration does not hold. ``line`` counts from 1; 0 is unknown, and is not said."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {message}" if line else message)
        self.message = message
        self.line = line
