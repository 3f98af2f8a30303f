"""The pods on each node, what they use, and pods of other schedulers nominated for it.

The kubelet's admission of another pod is checked against it.
"""

from collections.abc import Mapping

from services.shim_adapter.records import NodeRecord, PodRecord
from shared.model.gpus import GPU, GPU_SHARE, WHOLE, Devices
from shared.model.resources import Resource, ResourceView, add_into, subtract_into


class PodsOnNodes:
    """The pods that have not ended, by node, including foreign ones, in order of arrival."""

    def __init__(self, nodes: Mapping[str, NodeRecord]) -> None:
        self._nodes = nodes
        self._on: dict[str, dict[str, PodRecord]] = {}
        self._used: dict[str, Resource] = {}
        self._nominated: dict[str, PodRecord] = {}  # of other schedulers, and not on their node yet
        self._nominated_on: dict[str, dict[str, PodRecord]] = {}

    def of(self, node: str) -> list[PodRecord]:
        """Return the pods on a node that have not ended, foreign ones too, in order of arrival."""
        return list(self._on.get(node, {}).values())

    def nominated(self, node: str) -> list[PodRecord]:
        """Return the pods of other schedulers that are nominated for a node."""
        return list(self._nominated_on.get(node, {}).values())

    def shortage(self, node_name: str, wanted: ResourceView, devices: Devices = ()) -> str:
        """Return why a node cannot take a pod now, in the kubelet's words, or "".

        A kubelet does not know GPU shares: for those, the devices are compared.
        """
        node = self._nodes.get(node_name)
        if node is None:
            return f'nodes "{node_name}" not found'
        used = self._used.get(node_name, {})
        for name, value in wanted.items():
            if name == GPU_SHARE:
                continue
            taken, capacity = used.get(name, 0), node.capacity.get(name, 0)
            if value > 0 and taken + value > capacity:
                return (
                    f"OutOf{name}: Node didn't have enough resource: {name}, requested: {value}, "
                    f"used: {taken}, capacity: {capacity}"
                )
        return self._shortage_of_devices(node, devices)

    def _shortage_of_devices(self, node: NodeRecord, wanted: Devices) -> str:
        used = self.devices_used(node.name) if wanted else {}
        for index, amount in wanted:
            if index >= node.capacity.get(GPU, 0) or used.get(index, 0) + amount > WHOLE:
                return (
                    f"OutOf{GPU}: device {index} does not have enough, requested: {amount}, used: "
                    f"{used.get(index, 0)}, capacity: {WHOLE}, devices: "
                    f"{node.capacity.get(GPU, 0)}"
                )
        return ""

    def devices_used(self, node_name: str) -> dict[int, int]:
        """Return how many thousandths of each GPU device of a node are assigned."""
        used: dict[int, int] = {}
        for pod in self.of(node_name):
            for index, amount in pod.devices:
                used[index] = used.get(index, 0) + amount
        return used

    def add(self, pod: PodRecord) -> None:
        """Count a pod on its node."""
        self._on.setdefault(pod.node, {})[pod.uid] = pod
        add_into(self._used.setdefault(pod.node, {}), pod.spec.resource)

    def remove(self, pod: PodRecord) -> None:
        """Stop counting a pod on its node; repeating it changes nothing."""
        there = self._on.get(pod.node, {})
        if there.pop(pod.uid, None) is not None:
            subtract_into(self._used[pod.node], pod.spec.resource)
        if not there and self._on.pop(pod.node, None) is not None:
            del self._used[pod.node]

    def has(self, pod: PodRecord) -> bool:
        """Whether a pod counts on its node."""
        return pod.uid in self._on.get(pod.node, {})

    def nominate(self, pod: PodRecord) -> None:
        """Record that a pod of another scheduler is nominated for its node."""
        self._nominated[pod.uid] = pod
        self._nominated_on.setdefault(pod.node, {})[pod.uid] = pod

    def end_nomination(self, uid: str) -> PodRecord | None:
        """Remove a nomination; return its pod, or None if there was none."""
        pod = self._nominated.pop(uid, None)
        if pod is not None:
            there = self._nominated_on[pod.node]
            del there[uid]
            if not there:
                del self._nominated_on[pod.node]
        return pod

    def nomination_of(self, uid: str) -> PodRecord | None:
        """Return the nominated pod of another scheduler, or None."""
        return self._nominated.get(uid)
