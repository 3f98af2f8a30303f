"""What can go wrong on a bus, typed by what the caller does next."""


class PoisonError(ValueError):
    """A message can never be handled: dead-letter it with this reason, do not retry."""


class BusUnavailableError(ConnectionError):
    """The broker does not answer now: try the same call again later."""


class BusClosedError(ConnectionError):
    """This bus was closed here: stop."""
