"""The shim adapter of a simulated cluster: its world, the world's storage, and its machines."""

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

    A new world starts with ``first_nodes``, and ``nodes`` equal ones.
    """

    state_dir: Path | None = None
    config: str = ""
    scheduler_settings: dict[str, str] | None = None
    start_delay_ns: int = 0
    confirm_delay_ns: int = 0
    max_ended: int = 0  # ended pods to retain; 0: the default
    default_run_ns: int = DEFAULT_RUN_NS
    rm_id: str = "mycluster"
    nodes: int = 0
    node_capacity: dict[str, int] = field(default_factory=dict)
    first_nodes: tuple[NodeRecord, ...] = ()


class ShimService:
    """The resource manager, which outlives its machines.

    With a state directory, a new machine reads the file again, as in a new process; without one it
    continues with the same world.
    """

    def __init__(self, options: ShimOptions) -> None:
        """Lock the state directory, if there is one. Raises FolderInUseError, OSError."""
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
                self._world.let_go()  # the previous machine still references it
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
        """Close the file, and unlock its directory."""
        if self._store is not None:
            self._store.close()
            self._store = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _add_nodes(world: World, options: ShimOptions) -> None:
    """Add the first nodes to a new world."""
    names = (f"node-{at:04d}" for at in range(options.nodes))
    alike = (NodeRecord(name, dict(options.node_capacity)) for name in names)
    for node in (*alike, *options.first_nodes):
        world.nodes[node.name] = replace(node)
        world.touch_node(node.name)
