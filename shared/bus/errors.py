"""Errors of a bus, typed by what the caller does next."""


class UnknownBusError(ValueError):
    """A URL names no known bus: stop before starting."""


class PoisonError(ValueError):
    """A message can never be handled: dead-letter it with this reason, do not retry."""


class TooLargeError(PoisonError):
    """A message is larger than any broker accepts; ``size`` is its size in bytes."""

    def __init__(self, kind: str, size: int, most: int) -> None:
        super().__init__(f"{kind} has {size} bytes, at most {most}")
        self.size = size


class BusUnavailableError(ConnectionError):
    """The broker does not answer now: try the same call again later."""


class InboxFullError(BusUnavailableError):
    """An inbox has accepted nothing for as long as a publisher waits: its reader does not read."""


class BusClosedError(ConnectionError):
    """This bus was closed here: stop."""


class NotNowError(RuntimeError):
    """The state cannot be saved now (such as a full disk): nothing is lost, flush again later."""
