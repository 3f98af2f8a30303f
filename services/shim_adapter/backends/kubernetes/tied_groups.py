"""PodGroups whose claims restrict their pods to one node, or to nodes that reach one device.

Source: docs/kubernetes.md#devices. No I/O.
"""

from collections.abc import Iterable, Mapping

from services.shim_adapter.backends.kubernetes.claim_objects import (
    EVERYWHERE,
    Claim,
    DeviceClaims,
    GroupClaims,
    Key,
    Results,
)
from services.shim_adapter.backends.kubernetes.devices import Devices
from services.shim_adapter.backends.kubernetes.topologies import HOST_NAME

MAX_TIED = 100  # different claims of groups on devices of several nodes; others share one node


def shared_claims(pods: Iterable[DeviceClaims]) -> dict[str, dict[str, None]]:
    """Return the claims that several pods name, by the first of those that are tied together.

    Two claims are if a pod names both.
    """
    counts: dict[str, int] = {}
    named = [
        [each.claim for each in pod.claims if each.claim and not each.template] for pod in pods
    ]
    for names in named:
        for name in dict.fromkeys(names):
            counts[name] = counts.get(name, 0) + 1
    found: dict[str, dict[str, None]] = {}
    home = {name: name for name, count in counts.items() if count > 1}
    for names in named:
        homes = sorted({home[name] for name in names if name in home})
        for name, at in home.items() if len(homes) > 1 else ():
            if at in homes:
                home[name] = homes[0]
    for name, at in home.items():
        found.setdefault(at, {})[name] = None
    return found


class TiedGroups:
    """The node labels by which such groups are placed; those for devices only Muster sees.

    ``has_other_domains``: the labels may have changed since the last call of ``domains``.
    """

    def __init__(
        self, devices: Devices, claims: Mapping[Key, Claim], results: Mapping[Key, Results]
    ) -> None:
        """``results`` are the chosen devices that the claims do not show yet."""
        self._devices, self._claims, self._results = devices, claims, results
        self._tied: dict[str, Claim] = {}  # by label; claims of groups on devices of several nodes
        self.has_other_domains = False

    def devices_changed(self) -> None:
        """Record that devices, or the nodes that reach them, may have changed."""
        self.has_other_domains = self.has_other_domains or bool(self._tied)

    def tie_of(self, namespace: str, group: GroupClaims) -> str:
        """Return the node label of which all pods of a group need one value, for its devices.

        "": every node reaches them. The label for devices of several nodes has device names as
        values, and only Muster sees it (``domains``).
        """
        found = ""
        for _, name in group.claims.values():
            tie = self._tie_of((namespace, name))
            if tie == HOST_NAME:
                return tie
            found = found or tie
        return found

    def shared_ties(
        self, namespace: str, pods: Iterable[DeviceClaims]
    ) -> dict[str, tuple[str, str]]:
        """Return by claim that pods of a gang share: the name of its tie, and its node label.

        Pods of an allocated claim have its nodes, and one on devices that every node reaches ties
        nobody.
        """
        found: dict[str, tuple[str, str]] = {}
        for first, names in shared_claims(pods).items():
            is_open = {name: not self._is_allocated((namespace, name)) for name in names}
            claims = {name: (name, name) for name in names if is_open[name]}
            label = self.tie_of(namespace, GroupClaims("", "", claims)) if claims else ""
            found |= {name: (first, label) for name in claims if label}
        return found

    def _is_allocated(self, key: Key) -> bool:
        claim = self._claims.get(key)
        return key in self._results or (claim is not None and claim.is_allocated)

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
        """Return the label for a claim on devices of several nodes; "" if there are none."""
        label = next(iter(self._devices.types_of(claim)), "")
        if label in self._tied or len(self._tied) >= MAX_TIED:
            return label if label in self._tied else ""
        if not self._devices.domains_of(claim):
            return ""
        self._tied[label] = claim
        self.has_other_domains = True
        return label

    def domains(self) -> dict[str, dict[str, str]]:
        """Return by node the labels by which groups with claims are placed."""
        self.has_other_domains = False
        found: dict[str, dict[str, str]] = {}
        for label, claim in self._tied.items():
            for node, device in self._devices.domains_of(claim).items():
                found.setdefault(node, {})[label] = device
        return found

    def is_own_label(self, label: str) -> bool:
        """Whether a node label is one of ``domains``."""
        return label in self._tied
