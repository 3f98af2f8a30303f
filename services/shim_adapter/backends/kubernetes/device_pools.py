"""The pools of devices: which devices exist, and which nodes reach them.

Rule 1: a pool counts once all its slices of its highest generation are known; an incomplete pool
        has no devices. Older generations are ignored.
Rule 2: the taints of a device are those of its slice, and of matching DeviceTaintRules.
Source: docs/kubernetes.md#devices. Pure: no I/O.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from services.shim_adapter.backends.kubernetes.claim_objects import (
    EVERYWHERE,
    DeviceId,
    Published,
    Reach,
    Slice,
    TaintRule,
)
from services.shim_adapter.backends.kubernetes.device_capacity import Counter
from services.shim_adapter.translation.device_selectors import Device
from shared.messages.selectors import term_matches

Pool = tuple[str, str]  # driver and name


@dataclass(slots=True)
class DevicePools:
    """The pools. ``changed`` are the nodes whose number of devices may have changed."""

    changed: dict[str, None] = field(default_factory=dict)
    _slices: dict[str, Slice] = field(default_factory=dict)
    _pools: dict[Pool, dict[str, None]] = field(default_factory=dict)
    _incomplete: dict[Pool, None] = field(default_factory=dict)
    _given: dict[Pool, dict[DeviceId, None]] = field(default_factory=dict)  # by pool
    _rules: dict[str, TaintRule] = field(default_factory=dict)
    _labels: dict[str, Mapping[str, str]] = field(default_factory=dict)  # of nodes
    _on: dict[str, dict[DeviceId, Published]] = field(default_factory=dict)
    _nodes_of: dict[DeviceId, tuple[str, ...]] = field(default_factory=dict)
    _of_several: dict[DeviceId, Published] = field(default_factory=dict)  # nodes
    _counters: dict[Pool, Mapping[Counter, int]] = field(default_factory=dict)

    def see_slice(self, name: str, found: Slice | None) -> None:
        """Add, update or remove (None) a slice."""
        known = self._slices.pop(name, None)
        pools: dict[Pool, None] = {}
        if known is not None:
            pools[known.driver, known.pool] = None
            self._pools[known.driver, known.pool].pop(name)
        if found is not None:
            self._slices[name] = found
            pools[found.driver, found.pool] = None
            self._pools.setdefault((found.driver, found.pool), {})[name] = None
        for pool in pools:
            self._read_pool(pool)

    def _read_pool(self, pool: Pool) -> None:
        for known in self._given.pop(pool, ()):
            self._drop(known)
        self._incomplete.pop(pool, None)
        self._counters.pop(pool, None)
        if not self._pools[pool]:
            del self._pools[pool]
            return
        whole = self._whole(pool)
        if not whole:
            self._incomplete[pool] = None
        counters: dict[Counter, int] = {}
        for found in whole:
            counters |= found.counters
            for name, published in found.devices:
                device = (*pool, name)
                self._given.setdefault(pool, {})[device] = None
                self._add(device, self._with_taints(device, published))
        if counters:
            self._counters[pool] = counters

    def _add(self, device: DeviceId, published: Published) -> None:
        reach = published.reach
        nodes = (reach.node,) if reach.node else self._matching(reach)
        if not reach.node:
            self._of_several[device] = published
        self._nodes_of[device] = nodes
        for node in nodes:
            self._on.setdefault(node, {})[device] = published
            self.changed[node] = None

    def _drop(self, device: DeviceId) -> None:
        self._of_several.pop(device, None)
        for node in self._nodes_of.pop(device):
            del self._on[node][device]
            self.changed[node] = None

    def _matching(self, reach: Reach) -> tuple[str, ...]:
        return tuple(
            name for name, labels in self._labels.items()
            if any(term_matches(term, name, labels) for term in reach.terms)
        )  # fmt: skip

    def see_node(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Update a node's labels, which select devices of several nodes; None: it was removed."""
        before = self._labels.pop(name, None)
        if labels is not None:
            self._labels[name] = dict(labels)
        if not self._of_several or before == labels:
            return
        for device, published in list(self._of_several.items()):
            terms = published.reach.terms
            is_in = labels is not None and any(term_matches(each, name, labels) for each in terms)
            if is_in != (name in self._nodes_of[device]):
                self._drop(device)
                self._add(device, published)

    def see_taint(self, name: str, rule: TaintRule | None) -> None:
        """Add, update or remove (None) a taint rule."""
        known = self._rules.pop(name, None)
        if rule is not None:
            self._rules[name] = rule
        for pool in list(self._pools):
            rules = [each for each in (known, rule) if each is not None]
            if any(rule.driver in ("", pool[0]) and rule.pool in ("", pool[1]) for rule in rules):
                self._read_pool(pool)

    def _with_taints(self, device: DeviceId, published: Published) -> Published:
        more = tuple(rule.taint for rule in self._rules.values() if rule.is_about(device))
        if not more:
            return published
        taints = (*published.device.taints, *more)
        return replace(published, device=replace(published.device, taints=taints))

    def _whole(self, pool: Pool) -> list[Slice]:
        """Return the slices of a complete pool; [] if it is incomplete."""
        slices = self._newest(pool)
        return slices if slices and len(slices) == slices[0].slices else []

    def _newest(self, pool: Pool) -> list[Slice]:
        slices = [self._slices[name] for name in self._pools[pool]]
        newest = max(found.generation for found in slices)
        return [found for found in slices if found.generation == newest]

    # --- what there is --------------------------------------------------------------------------

    @property
    def has_incomplete(self) -> bool:
        """Whether slices of a pool are missing."""
        return bool(self._incomplete)

    def incomplete(self) -> Iterator[tuple[Pool, list[Slice]]]:
        """Yield the incomplete pools, by name, with their known slices."""
        for pool in sorted(self._incomplete):
            yield pool, self._newest(pool)

    @property
    def nodes(self) -> Iterable[str]:
        """The nodes with devices; EVERYWHERE stands for devices that all nodes reach."""
        return self._on

    def all(self) -> Iterator[Device]:
        """Yield every device, once for each node that reaches it."""
        return (found.device for on in self._on.values() for found in on.values())

    def of_several(self) -> Iterator[tuple[DeviceId, Published, tuple[str, ...]]]:
        """Yield the devices that several nodes reach, by name, with these nodes."""
        for device in sorted(self._of_several):
            yield device, self._of_several[device], self._nodes_of[device]

    def on(self, node: str) -> Mapping[DeviceId, Published]:
        """Return the devices of a node, and those that every node reaches."""
        own, shared = self._on.get(node, {}), self._on.get(EVERYWHERE)
        return {**own, **shared} if shared else own

    def beside(self, node: str) -> dict[DeviceId, Published]:
        """Return the devices, on any node, that share counters with one of a node's."""
        pools = self._sharing(node)
        return {each: self._found(each) for pool in pools for each in self._given[pool]}

    def counters_on(self, node: str) -> dict[tuple[object, ...], int]:
        """Return the total shared counters of the pools of a node's devices."""
        return {
            (pool, counter): milli
            for pool in self._sharing(node)
            for counter, milli in self._counters.get(pool, {}).items()
        }

    def _sharing(self, node: str) -> Iterable[Pool]:
        """Return the pools whose counters are shared by devices of a node."""
        if not self._counters:
            return ()
        return {each[:2]: None for each, found in self.on(node).items() if found.consumes}

    def _found(self, device: DeviceId) -> Published:
        nodes = self._nodes_of[device]
        return self._on[nodes[0]][device] if nodes else self._of_several[device]

    def touch(self, device: DeviceId) -> None:
        """Mark the nodes of a device, and of devices sharing its counters, as changed."""
        pool = device[:2]
        for each in self._given[pool] if pool in self._counters else (device,):
            self.changed |= dict.fromkeys(self._nodes_of.get(each, ()))

    def touch_all(self) -> None:
        """Mark all nodes as changed."""
        self.changed |= dict.fromkeys(self._on)

    def selector_of(self, devices: Iterable[DeviceId]) -> Mapping[str, Any] | None:
        """Return a selector of the nodes that reach some devices, {} for all; None for one node."""
        merged: dict[str, list[Any]] = {}
        for device in devices:
            nodes = self._nodes_of.get(device, ())
            several = self._of_several.get(device)
            if several is None and nodes != (EVERYWHERE,):
                return None
            for term in several.reach.selector["nodeSelectorTerms"] if several is not None else ():
                for key in ("matchExpressions", "matchFields"):
                    more = [each for each in term.get(key) or () if each not in merged.get(key, ())]
                    if more:
                        merged.setdefault(key, []).extend(more)
        return {"nodeSelectorTerms": [merged]} if merged else {}
