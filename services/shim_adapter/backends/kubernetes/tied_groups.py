"""PodGroups whose claims tie their pods together: to one node, or to nodes that reach one device.

Source: docs/kubernetes.md#devices. No I/O.
"""

from collections.abc import Mapping

from services.shim_adapter.backends.kubernetes.claim_objects import (
    EVERYWHERE,
    Claim,
    GroupClaims,
    Key,
    Results,
)
from services.shim_adapter.backends.kubernetes.devices import Devices
from services.shim_adapter.backends.kubernetes.topologies import HOST_NAME

MAX_TIED = 100  # different claims of groups on devices of several nodes; others share one node


class TiedGroups:
    """The labels of nodes by which groups with claims are placed; only we see those of devices.

    ``has_other_domains`` from when a node may have another value until ``domains`` is asked.
    """

    def __init__(
        self, devices: Devices, claims: Mapping[Key, Claim], results: Mapping[Key, Results]
    ) -> None:
        """``results`` are those that were chosen and that the claims do not show yet."""
        self._devices, self._claims, self._results = devices, claims, results
        self._tied: dict[str, Claim] = {}  # by label; claims of groups on devices of several nodes
        self.has_other_domains = False

    def devices_changed(self) -> None:
        """Take in that there may be other devices, or other nodes that reach them."""
        self.has_other_domains = self.has_other_domains or bool(self._tied)

    def tie_of(self, namespace: str, group: GroupClaims) -> str:
        """Return the label of nodes of which a group's pods need one value, for its devices.

        "": every node reaches them. A label of devices that several nodes reach has their names as
        values, and only we see it (``domains``).
        """
        found = ""
        for _, name in group.claims.values():
            tie = self._tie_of((namespace, name))
            if tie == HOST_NAME:
                return tie
            found = found or tie
        return found

    def _tie_of(self, key: Key) -> str:
        claim, results = self._claims.get(key), self._results.get(key)
        if claim is None or claim.node:
            return HOST_NAME
        if results is not None or claim.is_allocated:
            given = (result.device for result in results or ())
            is_local = results is not None and self._devices.pools.selector_of(given) is None
            return HOST_NAME if is_local else self._label_of(claim)
        if self._devices.choose(EVERYWHERE, [(key, claim)]) is not None:
            return ""
        return self._label_of(claim) or HOST_NAME

    def _label_of(self, claim: Claim) -> str:
        """Return the label of the devices of several nodes that a claim may have; "": none are."""
        label = next(iter(self._devices.types_of(claim)), "")
        if label in self._tied or len(self._tied) >= MAX_TIED:
            return label if label in self._tied else ""
        if not self._devices.domains_of(claim):
            return ""
        self._tied[label] = claim
        self.has_other_domains = True
        return label

    def domains(self) -> dict[str, dict[str, str]]:
        """Return by node the labels that groups with claims are placed by."""
        self.has_other_domains = False
        found: dict[str, dict[str, str]] = {}
        for label, claim in self._tied.items():
            for node, device in self._devices.domains_of(claim).items():
                found.setdefault(node, {})[label] = device
        return found

    def is_own_label(self, label: str) -> bool:
        """Return whether a label of nodes is one of ``domains``."""
        return label in self._tied
