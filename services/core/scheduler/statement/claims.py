"""Moves of claims, the only kind of reserved capacity, on every ledger that counts them.

Rule 1: a claim is made, changed (shortened, or enlarged as its victims end), handed over, and
        ended; nothing else writes the reserved capacity of nodes, queues and users.
Rule 2: what waits for capacity of queues and users is requeued here; what waits for a node is
        requeued by the caller (``partition``).
"""

from services.core.scheduler.model.rows import (
    NO_NODE,
    WHOLE_GANG,
    Application,
    Claim,
    Members,
    Node,
    Purpose,
)
from services.core.scheduler.model.shapes import Ask
from services.core.scheduler.nodes.node_table import NodeTable
from services.core.scheduler.ordering import queueing
from services.core.scheduler.statement import application_ledger
from services.core.scheduler.statement.journal import (
    ClaimChanged,
    ClaimEnded,
    ClaimMade,
    Journal,
)
from shared.model.resources import (
    Resource,
    ResourceView,
    add_into,
    excess,
    fits_room,
    multiply,
    subtract_into,
)

NOTHING: Resource = {}


class Claims:
    """The claims on a partition's nodes and queues."""

    def __init__(self, nodes: NodeTable, journal: Journal) -> None:
        self._nodes, self._journal = nodes, journal

    def make(
        self, claim: Claim, *, on_node: ResourceView = NOTHING, in_queues: ResourceView = NOTHING
    ) -> None:
        """Reserve capacity by a new claim; its application has none of this purpose and key."""
        application, node = claim.application, claim.node
        alike = application.claims.setdefault(claim.purpose, {})
        assert claim.key not in alike
        alike[claim.key] = claim
        if claim.is_reservation:
            node.reservations[claim.key] = application.reservations[claim.key] = claim
        if claim.members is not None:
            self._nodes.close(node, claim)
        if claim.pod is not None:
            self._nodes.pods.reserve_place(node, claim.pod, is_kept=True)
        self._journal.record(ClaimMade(claim))
        if on_node or in_queues:
            self.change(claim, on_node=on_node, in_queues=in_queues)
        self._refresh(claim)

    def hold(
        self, application: Application, node: Node, members: Members, leaves: Resource
    ) -> bool:
        """Claim a node for members of the head gang; return whether it now leaves others more."""
        claim = application.claims_for(Purpose.HEAD_GANG).get(node.node_id)
        shape, times = members
        wanted = multiply(shape.resource, times)
        if claim is None:
            claim = Claim(Purpose.HEAD_GANG, application, node.node_id, node, wanted)
            claim.members, claim.leaves = members, leaves
            self.make(claim)
            return False
        alike = application.claims[claim.purpose]
        alike[claim.key] = alike.pop(claim.key)  # keep the order of choice
        before = claim.leaves
        claim.members, claim.wanted, claim.leaves = members, wanted, leaves
        return not fits_room(before, leaves)

    def claim_for_gang(self, application: Application) -> None:
        """Set an admitted gang's claim to what it lacks; end it if the gang no longer reserves."""
        reserves = application.gang_admitted and application.is_reserving
        after = application.outstanding() if reserves else NOTHING
        claim = application.claims_for(Purpose.GANG).get(WHOLE_GANG)
        if claim is None:
            if after:
                claim = Claim(Purpose.GANG, application, WHOLE_GANG, NO_NODE, after)
                self.make(claim, in_queues=after)
        elif after and after != claim.in_queues:
            self.change(claim, on_node=NOTHING, in_queues=after)
        elif not after:
            self.end(claim)
            for wait_list in () if reserves else application.wait_lists():
                queueing.requeue(wait_list)

    def inherit(self, claim: Claim, application: Application) -> None:
        """Transfer a claim of the last head gang to the next one."""
        self._forget(claim)
        self._journal.record(ClaimEnded(claim))
        claim.application = application
        application.claims.setdefault(claim.purpose, {})[claim.key] = claim
        self._journal.record(ClaimMade(claim))

    def change(self, claim: Claim, *, on_node: ResourceView, in_queues: ResourceView) -> None:
        """Set the amounts that a claim reserves."""
        self._set(claim, on_node, in_queues)
        self._journal.record(ClaimChanged(claim, claim.on_node, claim.in_queues))

    def shorten(self, claim: Claim) -> None:
        """Reserve what a claim wants, less what the pods being released for it still occupy."""
        on_node = excess(claim.wanted, claim.freed_here)
        self.change(claim, on_node=on_node, in_queues=excess(claim.wanted, claim.freed))

    def take(self, claim: Claim, ask: Ask) -> None:
        """Transfer a moved pod's place to an ask that has a claim of its own there."""
        self._give_place_back(claim)
        claim.claimant = ask
        self.change(claim, on_node=NOTHING, in_queues=claim.in_queues)

    def hand_over(self, claim: Claim, to: Claim) -> None:
        """End a claim and transfer its amount in the queues to another; nothing is requeued."""
        to.in_queues, claim.in_queues = claim.in_queues, {}
        self._journal.record(ClaimChanged(to, to.on_node, to.in_queues))
        self.end(claim)
        application_ledger.count_fixed(to.application)

    def end(self, claim: Claim) -> None:
        """End a claim and free its capacity."""
        application = claim.application
        self._forget(claim)
        if claim.members is not None:
            self._nodes.close(claim.node, None)
        if claim.is_reservation:
            del claim.node.reservations[claim.key], application.reservations[claim.key]
        for key in claim.awaited:
            del application.covering[key]
        self._give_place_back(claim)
        self._set(claim, NOTHING, NOTHING)
        self._refresh(claim)
        self._journal.record(ClaimEnded(claim))

    # --- ledgers --------------------------------------------------------------------------------

    def _forget(self, claim: Claim) -> None:
        alike = claim.application.claims[claim.purpose]
        del alike[claim.key]
        if not alike:
            del claim.application.claims[claim.purpose]

    def _give_place_back(self, claim: Claim) -> None:
        if claim.pod is not None and claim.claimant is None:
            self._nodes.pods.reserve_place(claim.node, claim.pod, is_kept=False)

    def _set(self, claim: Claim, on_node: ResourceView, in_queues: ResourceView) -> None:
        if on_node != claim.on_node:
            subtract_into(claim.node.reserved, claim.on_node)
            add_into(claim.node.reserved, on_node)
            claim.on_node = dict(on_node)
            self._refresh(claim)
        if claim.purpose is Purpose.GANG:
            self._set_promise(claim, in_queues)
            return
        more, less = excess(in_queues, claim.in_queues), excess(claim.in_queues, in_queues)
        if not (more or less):
            return
        application, queue = claim.application, claim.application.queue
        trackers = application.trackers if claim.counts_for_users else ()
        claim.in_queues = dict(in_queues)
        if more:
            queue.claim(more)
            for tracker in trackers:
                tracker.claim(queue, more)
        if less:
            for tracker in trackers:
                queueing.release_user_claim(tracker, queue, less)
            queueing.release_claim(queue, less)
        application_ledger.count_fixed(application)

    @staticmethod
    def _set_promise(claim: Claim, now: ResourceView) -> None:
        """Update the amount that other gangs count at their admission."""
        application, before = claim.application, claim.in_queues
        queue = application.queue
        claim.in_queues = dict(now)
        queue.change_promise(before, now)
        if now:
            queue.promised_gangs[application] = None
        else:
            queue.promised_gangs.pop(application, None)
        for tracker in application.trackers:
            tracker.change_promise(queue, before, now)

    def _refresh(self, claim: Claim) -> None:
        """Update the node's row in the node table, if the node still exists."""
        if claim.purpose in (Purpose.GANG, Purpose.HEAD_GANG):
            return
        node = claim.node
        if self._nodes.nodes.get(node.node_id) is node:
            self._nodes.refresh(node)
