"""The bus that a URL names: ``memory`` is this process, ``amqp://…`` a broker."""

from collections.abc import Callable

from shared.bus.base import Bus
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.rabbitmq import RabbitBus

MEMORY = "memory"


class UnknownBusError(ValueError):
    """A URL names no bus that there is."""


def bus_factory(
    url: str, *, prefix: str = "muster", name: str = "muster", is_given: bool = False
) -> Callable[[], Bus]:
    """Return what makes connections to a bus. Raises UnknownBusError."""
    if url == MEMORY:
        broker = MemoryBroker()
        return lambda: MemoryBus(broker)
    if url.startswith(("amqp://", "amqps://")):
        return lambda: RabbitBus(url, prefix=prefix, name=name, is_given=is_given)
    raise UnknownBusError(f"{url!r}: expected memory, amqp://… or amqps://…")
