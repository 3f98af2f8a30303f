"""The shim adapter as a service: its world, the world's storage, and its machine."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from services.shim_adapter.backends.simulated import SimulatedCluster
from services.shim_adapter.backends.simulated.store import ClusterStore, FolderLock
from services.shim_adapter.machine import DEFAULT_RUN_NS, ShimMachine
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import NodeRecord
from shared.messages.envelope import SHIM_ADAPTER

INBOX = SHIM_ADAPTER
STATE_FILE = "cluster.sqlite"


@dataclass(slots=True)
class ShimOptions:
    """How the simulated resource manager behaves. ``state_dir`` None: in memory only.

    A world that has never been used begins with ``first_nodes``, and ``nodes`` that are alike.
    """

    state_dir: Path | None = None
    config: str = ""
    scheduler_settings: dict[str, str] | None = None
    start_delay_ns: int = 0
    confirm_delay_ns: int = 0
    max_ended: int = 0  # pods that are kept after their end; 0: as many as it keeps by itself
    default_run_ns: int = DEFAULT_RUN_NS
    rm_id: str = "mycluster"
    nodes: int = 0
    node_capacity: dict[str, int] = field(default_factory=dict)
    first_nodes: tuple[NodeRecord, ...] = ()


class ShimService:
    """The resource manager, which outlives the machines that mirror it.

    With a state directory a crash loses memory and the file is read again, as in a new process;
    without one the world itself is what remains.
    """

    def __init__(self, options: ShimOptions) -> None:
        """Take the state folder, if there is to be one. Raises FolderInUseError, OSError."""
        self.options = options
        self._lock = FolderLock(options.state_dir) if options.state_dir is not None else None
        self._world: World | None = None
        self._cluster: SimulatedCluster | None = None
        self._store: ClusterStore | None = None

    def make_machine(self) -> ShimMachine:
        """Return a machine over the stored world."""
        options = self.options
        if self._store is not None:
            self._store.close()
        self._store = (
            ClusterStore(options.state_dir / STATE_FILE) if options.state_dir is not None else None
        )
        if self._store is not None:
            if self._world is not None:
                self._world.let_go()  # the machine of before still has it
            self._cluster = None
            self._world = self._store.load()
        world = self._world = self._world or World()
        if not world.epoch:
            world.set_config(options.config)
            world.scheduler_settings = dict(options.scheduler_settings or {})
            _add_nodes(world, options)
        if self._cluster is None:
            self._cluster = SimulatedCluster(
                world,
                start_delay_ns=options.start_delay_ns,
                confirm_delay_ns=options.confirm_delay_ns,
                max_ended=options.max_ended,
            )
        return ShimMachine(
            world,
            self._cluster,
            playground=self._cluster,
            rm_id=options.rm_id,
            default_run_ns=options.default_run_ns,
            save=self._store.save if self._store is not None else None,
        )

    def close(self) -> None:
        """Close the file, and leave its folder to others."""
        if self._store is not None:
            self._store.close()
            self._store = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _add_nodes(world: World, options: ShimOptions) -> None:
    """Put the first nodes into a world that has never been used."""
    names = (f"node-{at:04d}" for at in range(options.nodes))
    alike = (NodeRecord(name, dict(options.node_capacity)) for name in names)
    for node in (*alike, *options.first_nodes):
        world.nodes[node.name] = replace(node)
        world.touch_node(node.name)
