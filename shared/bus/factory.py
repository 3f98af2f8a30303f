"""Makes the bus that a URL names: ``memory`` is in-process, ``amqp://…`` one or several brokers."""

from collections.abc import Callable

from shared.bus.addresses import addresses_of
from shared.bus.base import Bus
from shared.bus.errors import UnknownBusError
from shared.bus.links import HEARTBEAT_SECONDS
from shared.bus.memory import MemoryBroker, MemoryBus
from shared.bus.rabbitmq import RabbitBus

MEMORY = "memory"
__all__ = ["MEMORY", "UnknownBusError", "bus_factory"]


def bus_factory(
    url: str,
    *,
    prefix: str = "muster",
    name: str = "muster",
    is_given: bool = False,
    heartbeat_seconds: int = HEARTBEAT_SECONDS,
) -> Callable[[], Bus]:
    """Return a function that makes connections to a bus. Raises UnknownBusError."""
    if url == MEMORY:
        broker = MemoryBroker()
        return lambda: MemoryBus(broker)
    addresses_of(url)
    return lambda: RabbitBus(
        url, prefix=prefix, name=name, is_given=is_given, heartbeat_seconds=heartbeat_seconds
    )
