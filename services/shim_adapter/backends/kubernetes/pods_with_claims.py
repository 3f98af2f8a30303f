"""Pods that claim devices: why they wait, what the core counts for them, and their devices.

Rule 1: a pod is not asked for until all its claims exist and contain nothing unsupported.
Rule 2: of pods that share a claim the first leads: its ask counts the devices. The others wait
        until the claim is allocated, and then go to its node only. A pod that leads one claim leads
        all its claims. Members of one gang that is still to be formed do not wait: it is placed
        with those that share a claim on nodes that reach its devices.
Rule 3: the claims of a PodGroup belong to all its members. The first one's ask counts the devices;
        all go to nodes that reach one device (the gang is in one domain of
        `kubernetes.io/hostname`, or of a label per device), and the first one bound gets the
        devices allocated for all.
Rule 4: devices are chosen when pods are bound, among the free ones on their node, together for all
        pods bound there at once and those of their gang still to come there. Without free devices
        the bind is refused, and the core decides again.
Rule 5: a claim that was allocated before a pod was asked for is not counted for the pod.
Source: docs/kubernetes.md#devices. No I/O.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from services.shim_adapter.backends.kubernetes.claim_objects import (
    EVERYWHERE,
    EXTENDED_CLAIM,
    IMPLICIT,
    MAX_RESERVED,
    NO_CLAIMS,
    Claim,
    ClaimToWrite,
    DeviceClass,
    GroupClaims,
    Key,
    Request,
    Results,
    Slice,
)
from services.shim_adapter.backends.kubernetes.devices import Devices
from services.shim_adapter.backends.kubernetes.members_to_come import MembersToCome
from services.shim_adapter.backends.kubernetes.objects import PodView
from services.shim_adapter.backends.kubernetes.observed import (
    DeviceClaimSeen,
    DeviceClassSeen,
    SliceSeen,
    TaintRuleSeen,
)
from services.shim_adapter.backends.kubernetes.tied_groups import TiedGroups
from services.shim_adapter.backends.kubernetes.volumes import within
from services.shim_adapter.mirror.calls import News, PodGone
from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import NodeRecord, PodRecord
from services.shim_adapter.translation.workloads.pod_groups import GroupRef
from shared.messages.commands import PodSpec
from shared.messages.constraints import NodeTerm, Requirement
from shared.model.ids import derived_suffix
from shared.model.reasons import Reason

Why = tuple[Reason, str]  # a pod waits
NOTHING: Why = (Reason.DEVICES, "")


@dataclass(slots=True)
class _Pod:
    """A pod with claims, as last observed. ``asks`` are the claims that the core counts for it."""

    view: PodView
    keys: tuple[Key, ...] = ()
    group: GroupClaims | None = None
    of_group: frozenset[Key] = frozenset()
    missing: str = ""  # an entry of which there is no claim yet
    made: tuple[Key, ...] = ()  # the claim that is made for its extended resources
    asks: tuple[Key, ...] = ()
    is_led: bool = False  # by another pod of its gang

    def has(self, key: Key, claim: Claim) -> bool:
        """Whether a claim is reserved for the pod, or for its group."""
        is_groups = key in self.of_group and self.group is not None
        return (self.group.uid if self.group and is_groups else self.view.uid) in claim.reserved


class PodsWithClaims:
    """The pods. ``admit`` adds one that no longer waits; ``group_claims`` returns a PodGroup's."""

    def __init__(
        self,
        world: World,
        admit: Callable[[PodView, int], list[News]],
        group_claims: Callable[[GroupRef], GroupClaims | None],
        is_to_be_formed: Callable[[GroupRef], bool] = lambda _: False,
    ) -> None:
        self.devices = Devices()
        self._world = world
        self._admit = admit
        self._group_claims, self._is_to_be_formed = group_claims, is_to_be_formed
        self._claims: dict[Key, Claim] = {}
        self._pods: dict[str, _Pod] = {}
        self._waiting: dict[str, None] = {}
        self._named: dict[Key, dict[str, None]] = {}  # pods, by claim
        self._leads: dict[Key, str] = {}
        self._wrong_classes: dict[str, str] = {}  # and what of them is not supported
        self._again: dict[str, None] = {}  # pods that may lead a claim now
        self._results: dict[Key, Results] = {}  # that were chosen, until the claim shows them
        self._to_come = MembersToCome(world)
        self._allocatable: dict[str, Mapping[str, int]] = {}
        self.tied = TiedGroups(self.devices, self._claims, self._results)

    # --- what is seen ---------------------------------------------------------------------------

    def on_slice(self, seen: SliceSeen, now_ns: int) -> list[News]:
        """Apply a change of a slice, and check the pods again that wait for a complete pool."""
        were_missing = self.devices.pools.has_incomplete
        self.devices.pools.see_slice(
            seen.name, seen.found if isinstance(seen.found, Slice) else None
        )
        self.tied.devices_changed()
        return self._judge_again(list(self._waiting), now_ns) if were_missing else []

    def on_taint(self, seen: TaintRuleSeen, _: int) -> list[News]:
        """Apply a change of a taint rule."""
        self.devices.pools.see_taint(seen.name, seen.rule)
        return []

    def on_class(self, seen: DeviceClassSeen, now_ns: int) -> list[News]:
        """Apply a change of a class, whose extended resource is counted from now on."""
        found = seen.found if isinstance(seen.found, DeviceClass) else None
        self._wrong_classes.pop(seen.name, None)
        if isinstance(seen.found, str):
            self._wrong_classes[seen.name] = seen.found
        self.devices.see_class(seen.name, found)
        if found is not None and found.extended:
            self.devices.count(Request("", seen.name))
        return self._judge_again(list(self._waiting), now_ns)

    def on_claim(self, seen: DeviceClaimSeen, now_ns: int) -> list[News]:
        """Apply a change of a claim, and check the pods again that name it."""
        known = self._claims.pop(seen.name, None)
        if seen.claim is not None:
            self._claims[seen.name] = seen.claim
        self.devices.see_claim(seen.name, seen.claim)
        if seen.claim is None or seen.claim.is_allocated:
            self._results.pop(seen.name, None)
        if known == seen.claim:
            return []
        return self._judge_again(list(self._named.get(seen.name, ())), now_ns)

    def group_changed(self, now_ns: int) -> list[News]:
        """Check the pods again that wait for claims of their groups."""
        return self._judge_again(list(self._waiting), now_ns)

    def _judge_again(self, uids: Iterable[str], now_ns: int) -> list[News]:
        news: list[News] = []
        for uid in uids:
            known, pod = self._pods.get(uid), self._world.pods.get(uid)
            if known is None:
                continue
            if pod is None and (uid in self._waiting or known.is_led):
                news += self._admit(known.view, now_ns)
            elif pod is not None and not pod.node and self._is_settled_elsewhere(known):
                self._world.drop_pod(pod)
                news.append(PodGone(pod))
                self._lead_no_more(uid)
                news += self._admit(known.view, now_ns)
        return news

    def _is_settled_elsewhere(self, known: _Pod) -> bool:
        """Whether a claim that a pod's ask counts was allocated by others, or deleted."""
        for key in known.asks:
            claim = self._claims.get(key)
            if claim is None or (claim.is_allocated and not self.devices.is_counted(key)):
                return True
        return False

    # --- nodes ----------------------------------------------------------------------------------

    def on_node(self, record: NodeRecord) -> None:
        """Add the devices of a node to its capacity, which the API server reports without them."""
        self._allocatable[record.name] = record.capacity
        self.devices.pools.see_node(record.name, record.labels)
        self.tied.devices_changed()
        extra = self.devices.offered(record.name, record.capacity)
        if extra:
            record.capacity = {**record.capacity, **extra}

    def node_gone(self, name: str) -> None:
        """Remove a node."""
        self._allocatable.pop(name, None)
        self.devices.pools.see_node(name, None)

    def renewed(self) -> list[NodeRecord]:
        """Return the nodes whose number of devices has changed."""
        changed, self.devices.pools.changed = self.devices.pools.changed, {}
        found: list[NodeRecord] = []
        for name in self._allocatable if EVERYWHERE in changed else changed:
            node, allocatable = self._world.nodes.get(name), self._allocatable.get(name)
            if node is None or allocatable is None:
                continue
            capacity = {**allocatable, **self.devices.offered(name, allocatable)}
            if capacity != node.capacity:
                node.capacity = capacity
                found.append(node)
        return found

    # --- pods -----------------------------------------------------------------------------------

    def spec_of(self, view: PodView, spec: PodSpec) -> tuple[PodSpec, Why]:
        """Return a pod's spec with the resources of its claims, and why it must wait."""
        wanted = view.device_claims
        if wanted == NO_CLAIMS or (view.node and not (wanted.claims or wanted.made)):
            return spec, NOTHING
        known = self._note(view)
        for _, _, resource, _, _ in wanted.extended:
            if resource.startswith(IMPLICIT) and self.devices.classes.class_of(resource):
                self.devices.count_implicit(resource, self.devices.classes.class_of(resource))
        if view.node:
            self._waiting.pop(view.uid, None)
            return self._on_its_node(known, spec), NOTHING
        why = self._why_it_waits(known)
        if why != NOTHING:
            self._waiting[view.uid] = None
            return spec, why
        self._waiting.pop(view.uid, None)
        return self._asking(known, spec), NOTHING

    def _note(self, view: PodView) -> _Pod:
        """Record a pod with the claims that it names now, including its group's."""
        group = None
        if view.group is not None and view.device_claims.claims:
            group = self._group_claims(view.group)
        keys: dict[Key, None] = {}
        of_group: dict[Key, None] = {}
        missing = ""
        for entry in view.device_claims.claims:
            name, named = entry.claim, entry.template or entry.claim
            shared = group.claims.get(entry.entry) if group is not None else None
            if shared is not None and shared[0] == named:
                name = shared[1]
                of_group[view.namespace, name] = None
            keys[view.namespace, name] = None
            if not name:
                missing = f"claim {entry.entry}: no ResourceClaim is made of {entry.template} yet"
        before = self._pods.get(view.uid)
        for key in () if before is None else before.keys:
            self._named.get(key, {}).pop(view.uid, None)
        for key in keys:
            self._named.setdefault(key, {})[view.uid] = None
        asks = () if before is None else before.asks
        made = () if before is None else before.made
        found = _Pod(view, tuple(keys), group, frozenset(of_group), missing, made, asks)
        self._pods[view.uid] = found
        return found

    def _why_it_waits(self, known: _Pod) -> Why:
        uid = known.view.uid
        if known.missing:
            return _waits(known.missing)
        for key in known.keys:
            claim = self._claims.get(key)
            why = self._wrong(key, claim, known)
            if why != NOTHING or claim is None:
                return why
            leader = self._leads.get(key, uid)
            if not claim.is_allocated and leader != uid and key not in known.of_group:
                first = self._pods[leader].view.name
                if self._is_of_its_gang(known, self._pods[leader]):
                    known.is_led = True
                    continue
                told = f"ResourceClaim {key[1]} is allocated with the first of its pods, {first}"
                return _waits(told)
        return NOTHING

    def _is_of_its_gang(self, known: _Pod, leader: _Pod) -> bool:
        """Whether two pods are to be placed together as members of one gang."""
        group = known.view.group
        return group is not None and group == leader.view.group and self._is_to_be_formed(group)

    def _wrong(self, key: Key, claim: Claim | None, known: _Pod) -> Why:
        """Return why a pod cannot use a claim as it is."""
        name = f"ResourceClaim {key[1]}"
        if claim is None:
            return _waits(f"{name} is not there")
        if claim.is_going:
            return _waits(f"{name} is being deleted")
        if claim.owner and claim.owner != known.view.uid:
            return _waits(f"{name} was made for another pod")
        if claim.is_allocated:
            is_full = len(claim.reserved) >= MAX_RESERVED and not known.has(key, claim)
            full = f"{name} is reserved for {len(claim.reserved)} pods, no more"
            return _waits(full) if is_full else NOTHING
        return _refused(f"{name}: {claim.wrong}") if claim.wrong else self._uncounted(name, claim)

    def _uncounted(self, name: str, claim: Claim) -> Why:
        """Return why a claim's requests cannot be counted; otherwise count them from now on."""
        for request in claim.requests:
            if request.device_class not in self.devices.classes.by_name:
                wrong = self._wrong_classes.get(request.device_class)
                if wrong:
                    return _refused(f"{name}: DeviceClass {request.device_class}: {wrong}")
                return _waits(f"{name}: there is no DeviceClass {request.device_class}")
            if request.is_plain and not self.devices.count(request):
                return _refused(f"{name}: too many different requests are counted")
        if not self.devices.count_joint(claim):
            return _refused(f"{name}: too many different requests are counted")
        incomplete = self.devices.incomplete_for(claim)
        return _waits(f"{name}: {incomplete}") if incomplete else NOTHING

    def _asking(self, known: _Pod, spec: PodSpec) -> PodSpec:
        """Return a pod's spec with its devices, restricted to the nodes of allocated claims."""
        uid = known.view.uid
        asks: list[Key] = []
        for key in known.keys:
            claim = self._claims[key]
            if claim.is_allocated:
                spec = _only_on(spec, claim)
            elif self._leads.setdefault(key, uid) == uid:
                asks.append(key)
                spec = self._preferring(self._with_devices(spec, claim), claim)
        known.asks = tuple(asks)
        self._to_come.asked(uid, spec.application_id)
        return spec

    def _preferring(self, spec: PodSpec, claim: Claim) -> PodSpec:
        """Return a pod's spec that prefers nodes with the better alternatives of its claim."""
        ranked = self.devices.ranked(claim)
        terms = tuple(
            NodeTerm(fields=(Requirement("metadata.name", "In", tuple(nodes)),), weight=weight)
            for weight, nodes in sorted(ranked.items())
            if weight
        )
        if not terms:
            return spec
        constraints = spec.constraints
        preferred = (*constraints.preferred_nodes, *terms)
        return replace(spec, constraints=replace(constraints, preferred_nodes=preferred))

    def _on_its_node(self, known: _Pod, spec: PodSpec) -> PodSpec:
        """Return a bound pod's spec with the devices that are counted for it.

        After a restart they count for the first pod for which a claim is reserved.
        """
        asks: list[Key] = []
        for key in known.keys:
            claim = self._claims.get(key)
            if claim is None or not claim.is_allocated or claim.wrong:
                continue
            consumer = known.view.uid
            if key in known.of_group:
                leader = self._leads.setdefault(key, known.view.uid)
                consumer = claim.reserved[0] if leader == known.view.uid and claim.reserved else ""
            if claim.reserved[:1] == (consumer,):
                asks.append(key)
                spec = self._with_devices(spec, claim)
                self._leads[key] = known.view.uid
                self.devices.counts_as(key, self._types_of(claim))
        known.asks = tuple(asks)
        made = known.view.device_claims.made
        if made:
            known.made = ((known.view.namespace, made),)
            self.devices.counts_as(known.made[0], self._extended_of(known))
        return spec

    def _with_devices(self, spec: PodSpec, claim: Claim) -> PodSpec:
        self._uncounted("", claim)
        resource = dict(spec.resource)
        for kind, count in self.devices.types_of(claim).items():
            resource[kind] = resource.get(kind, 0) + count
        return replace(spec, resource=resource)

    def _types_of(self, claim: Claim) -> frozenset[str]:
        return frozenset(self.devices.types_of(claim))

    def asked(self, uid: str, resource: Mapping[str, int]) -> dict[str, int]:
        """Return a pod's resource with those of its claims."""
        known = self._pods.get(uid)
        found = dict(resource)
        for key in () if known is None else known.asks:
            claim = self._claims.get(key)
            for kind, count in () if claim is None else self.devices.types_of(claim).items():
                found[kind] = found.get(kind, 0) + count
        return found

    # --- binding --------------------------------------------------------------------------------

    def has_claims(self, pod: PodRecord) -> bool:
        """Whether claims must be written before a pod is bound."""
        return pod.uid in self._pods

    def choose(self, pods: list[PodRecord]) -> dict[str, tuple[ClaimToWrite, ...] | str]:
        """Return what to write before pods are bound, with devices reserved; or why one is refused.

        Devices are chosen for all pods of a node together, so that no pod's choice leaves another
        without devices unnecessarily.
        """
        by_node: dict[str, list[PodRecord]] = {}
        for pod in pods:
            by_node.setdefault(pod.node, []).append(pod)
            self._to_come.bound(pod)
        found: dict[str, tuple[ClaimToWrite, ...] | str] = {}
        for node, there in by_node.items():
            chosen = self._chosen(node, there)
            for pod in there:
                found[pod.uid] = self.to_write(pod, chosen)
        return found

    def _chosen(self, node: str, pods: list[PodRecord]) -> dict[Key, Results] | None:
        """Return devices for all claims of the pods on a node; None if there are none.

        If possible, those of their gangs' pods still to come there are included.
        """
        wanted: dict[Key, Claim] = {}
        for pod in pods:
            known = self._pods.get(pod.uid)
            of_pod = [] if known is None else self._all_wanted(known, pod)
            wanted |= {} if isinstance(of_pod, str) else dict(of_pod)
        with_others = {**wanted, **self._wanted_later(node, pods)}
        for each in (with_others, wanted) if len(with_others) > len(wanted) else (wanted,):
            found = self.devices.choose(node, list(each.items())) if len(each) > 1 else None
            if found is not None:
                return found
        return None

    def _wanted_later(self, node: str, pods: list[PodRecord]) -> dict[Key, Claim]:
        """Return the unallocated claims of pods that will be bound to a node later."""
        wanted: dict[Key, Claim] = {}
        for pod in self._to_come.to(node, pods):
            known = self._pods.get(pod.uid)
            of_pod = [] if known is None else self._wanted(known, pod)
            wanted |= {} if isinstance(of_pod, str) else dict(of_pod)
        return wanted

    def _all_wanted(self, known: _Pod, pod: PodRecord) -> list[tuple[Key, Claim]] | str:
        """Return a pod's unallocated claims, including that for its extended resources."""
        wanted, extended = self._wanted(known, pod), self._extended_claim(known, pod)
        if extended is not None and not isinstance(wanted, str):
            choices = tuple((request,) for request in extended[1])
            wanted.append((extended[0], Claim("", choices)))
        return wanted

    def to_write(
        self, pod: PodRecord, together: Mapping[Key, Results] | None = None
    ) -> tuple[ClaimToWrite, ...] | str:
        """Return what to write before a pod is bound, with devices reserved; or why it is refused.

        ``together`` are devices chosen for it and other pods.
        """
        known = self._pods.get(pod.uid)
        if known is None:
            return ()
        extended = self._extended_claim(known, pod)
        wanted = self._all_wanted(known, pod)
        if isinstance(wanted, str):
            return wanted
        if together is not None:
            chosen: dict[Key, Results] | None = {key: together[key] for key, _ in wanted}
        else:
            chosen = self.devices.choose(pod.node, wanted) if wanted else {}
        if chosen is None:
            return f"the devices that its claims ask for are not free on node {pod.node}"
        for key, results in chosen.items():
            self._results[key] = results
            types = self._extended_of(known)
            if extended is None or key != extended[0]:
                types = self._types_of(self._claims[key])
            self.devices.reserve(key, results, types)
        writes = [self._write(known, pod, key) for key in known.keys]
        known.made = () if extended is None else (extended[0],)
        if extended is not None:
            writes.append(self._write_extended(known, pod, extended))
        return tuple(writes)

    def _wanted(self, known: _Pod, pod: PodRecord) -> list[tuple[Key, Claim]] | str:
        """Return the unallocated claims of a pod; or why one is unavailable."""
        wanted: list[tuple[Key, Claim]] = []
        for key in known.keys:
            claim = self._claims.get(key)
            if claim is None:
                return f"ResourceClaim {key[1]} is not there"
            if claim.is_allocated and claim.node not in ("", pod.node):
                return f"ResourceClaim {key[1]} is allocated on node {claim.node}"
            if not claim.is_allocated and key not in self._results:
                wanted.append((key, claim))
        return wanted

    def _write(self, known: _Pod, pod: PodRecord, key: Key) -> ClaimToWrite:
        claim = self._claims[key]
        consumer = {"resource": "pods", "name": pod.spec.name, "uid": pod.uid}
        if key in known.of_group and known.group is not None:
            group = known.group
            consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups"}
            consumer |= {"name": group.name, "uid": group.uid}
        config = [
            {"source": "FromClass", "requests": [request.name], **each}
            for request in claim.requests
            for each in self.devices.classes.config_of(request.device_class)
        ]
        config += [{"source": "FromClaim", **each} for each in claim.config]
        results = self._results.get(key, ())
        return ClaimToWrite(
            *key,
            claim.uid,
            pod.node,
            results,
            tuple(config),
            consumer,
            selector=self._selector_of(results),
            tolerations={each.name: each.tolerations for each in claim.requests},
        )

    def _selector_of(self, results: Results) -> Mapping[str, Any] | None:
        return (
            self.devices.pools.selector_of(result.device for result in results) if results else None
        )

    def _extended_claim(self, known: _Pod, pod: PodRecord) -> tuple[Key, list[Request]] | None:
        """Return the claim to create for a pod's extended resources, or None.

        A resource that a device plugin offers on the pod's node is the plugin's. A placeholder has
        none: it holds a number of devices, and its claim would outlive it.
        """
        if pod.spec.placeholder:
            return None
        plugin = self._allocatable.get(pod.node, {})
        requests: list[Request] = []
        for _, at, resource, place, count in known.view.device_claims.extended:
            device_class = self.devices.classes.class_of(resource)
            if device_class and not plugin.get(resource):
                name = f"container-{at}-request-{place}"
                requests.append(Request(name, device_class, count))
        if not requests:
            return None
        name = known.view.device_claims.made
        if not name:
            name = f"{pod.spec.name[:40]}-extended-resources-{derived_suffix(pod.uid, 5)}"
        return (pod.spec.namespace, name), requests

    def _extended_of(self, known: _Pod) -> frozenset[str]:
        return frozenset(resource for _, _, resource, _, _ in known.view.device_claims.extended)

    def _write_extended(
        self, known: _Pod, pod: PodRecord, extended: tuple[Key, list[Request]]
    ) -> ClaimToWrite:
        key, requests = extended
        body = _extended_body(key, pod, requests)
        names = {request.name for request in requests}
        containers = tuple(
            {
                "containerName": container,
                "resourceName": resource,
                "requestName": f"container-{at}-request-{place}",
            }
            for container, at, resource, place, _ in known.view.device_claims.extended
            if f"container-{at}-request-{place}" in names
        )
        consumer = {"resource": "pods", "name": pod.spec.name, "uid": pod.uid}
        results = self._results[key]
        return ClaimToWrite(
            *key,
            "",
            pod.node,
            results,
            (),
            consumer,
            selector=self._selector_of(results),
            body=body,
            containers=containers,
        )

    def bound(self, pod: PodRecord) -> None:
        """Record that a pod is bound; forget it if it has no claims."""
        known = self._pods.get(pod.uid)
        if known is not None and not (known.keys or known.made):
            del self._pods[pod.uid]

    def not_bound(self, pod: PodRecord) -> None:
        """Free the devices chosen for a pod that could not be bound."""
        known = self._pods.get(pod.uid)
        if known is None:
            return
        keys = list(known.keys)
        extended = self._extended_claim(known, pod) if known.view.device_claims.extended else None
        keys += [extended[0]] if extended is not None else []
        for key in keys:
            claim = self._claims.get(key)
            is_open = claim is None or not claim.is_allocated
            if is_open and not self._is_being_bound(key, but=pod.uid):
                self._results.pop(key, None)
                self.devices.give_back(key)
        self._to_come.asked(pod.uid, pod.spec.application_id)

    def _is_being_bound(self, key: Key, but: str) -> bool:
        """Whether another pod with a claim is bound, so that its devices are needed."""
        pods = (self._world.pods.get(uid) for uid in self._named.get(key, ()) if uid != but)
        return any(pod is not None and pod.node for pod in pods)

    def replaced(self, placeholder: PodRecord) -> None:
        """Record that a placeholder is gone: a pod with claims may take its place."""
        self._to_come.replaced(placeholder)

    def advance(self, now_ns: int) -> list[News]:
        """Check the pods again whose claims were led by a pod that is gone."""
        again, self._again = self._again, {}
        return self._judge_again(again, now_ns)

    def forget(self, uid: str) -> None:
        """Forget a pod that has ended or is gone; the next one may lead its claims."""
        known = self._pods.pop(uid, None)
        self._waiting.pop(uid, None)
        self._to_come.forget(uid)
        if known is None:
            return
        for key in (*known.asks, *known.made):
            self.devices.counts_as(key, frozenset())
        for key in known.keys:
            self._named.get(key, {}).pop(uid, None)
            if not self._named.get(key):
                self._named.pop(key, None)
        self._again |= dict.fromkeys(self._lead_no_more(uid, known.keys))

    def _lead_no_more(self, uid: str, keys: tuple[Key, ...] | None = None) -> list[str]:
        """Stop leading claims; return the other pods that name them."""
        known = self._pods.get(uid)
        led = keys if keys is not None else (() if known is None else known.keys)
        others: dict[str, None] = {}
        for key in led:
            if self._leads.get(key) == uid:
                del self._leads[key]
                others |= dict.fromkeys(self._named.get(key, ()))
        if known is not None:
            known.asks = ()
        return [other for other in others if other != uid]


def _waits(text: str) -> Why:
    return Reason.DEVICES, text


def _refused(text: str) -> Why:
    return Reason.POD_REFUSED, text


def _extended_body(key: Key, pod: PodRecord, requests: list[Request]) -> dict[str, Any]:
    """Return the claim to create for a pod's extended resources, in kube-scheduler's form."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.spec.name, "uid": pod.uid}
    listed = [
        {
            "name": request.name,
            "exactly": {
                "deviceClassName": request.device_class,
                "allocationMode": "ExactCount",
                "count": request.count,
            },
        }
        for request in requests
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": key[1],
            "namespace": key[0],
            "annotations": {EXTENDED_CLAIM: "true"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {"devices": {"requests": listed}},
    }


def _only_on(spec: PodSpec, claim: Claim) -> PodSpec:
    """Return a pod's spec restricted to the nodes of an allocated claim."""
    terms = claim.terms
    if claim.node:
        terms = (NodeTerm(fields=(Requirement("metadata.name", "In", (claim.node,)),)),)
    return replace(spec, constraints=within(spec.constraints, terms)) if terms else spec
