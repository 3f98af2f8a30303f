"""Run the shim adapter alone: ``python -m services.shim_adapter``, configured by the environment.

The resource manager is the simulated one: MUSTER_SIMULATED_NODES nodes are there at the first
start, and MUSTER_STATE_DIR keeps its state. MUSTER_QUEUES_FILE is watched: a change takes effect.
"""

from collections.abc import Callable

from services.shim_adapter.config_watch import watch
from services.shim_adapter.service import INBOX, ShimOptions, ShimService
from shared.messages.envelope import Address
from shared.model.resources import MEMORY, PODS, VCORE
from shared.model.units import milliseconds, seconds
from shared.runtime.host import Machine
from shared.runtime.service import run_service
from shared.runtime.settings import Settings

PODS_A_NODE = 110


def prepare(settings: Settings, _: str) -> tuple[Address, Callable[[], Machine]]:
    """Return the shim adapter's inbox and what makes its machine."""
    config = settings.queues_file.read_text() if settings.queues_file is not None else ""
    service = ShimService(
        ShimOptions(
            state_dir=settings.state_dir,
            config=config,
            start_delay_ns=milliseconds(settings.pod_start_delay_ms),
            confirm_delay_ns=milliseconds(settings.release_delay_ms),
            default_run_ns=seconds(settings.pod_run_seconds),
            nodes=settings.simulated_nodes,
            node_capacity={
                VCORE: settings.simulated_node_vcore_milli,
                MEMORY: settings.simulated_node_memory_bytes,
                PODS: PODS_A_NODE,
            },
        )
    )
    return INBOX, service.make_machine


if __name__ == "__main__":
    run_service(
        "shim_adapter", prepare, lambda host, settings: watch(lambda: host, settings.queues_file)
    )
