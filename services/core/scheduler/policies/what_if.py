"""What if: would applications start now, where, and who would be evicted for them.

Rule 1: a forecast is made right after a cycle, when nobody who waits can be placed as it is. What
        is supposed is placed as the cycle would: the queues in their order, in a leaf the
        applications, in an application the asks; a gang is admitted as a whole, or not at all.
Rule 2: where asks that are supposed find no room, or any that wait under another configuration,
        the laws say who would have to go for them (``what_if_victims``).
Rule 3: of a node that is drained, all pods but those that must be there are supposed to be evicted,
        and to be made again elsewhere at once.
Rule 4: a configuration is supposed whole (``what_if_queues``). Reserved asks are tried first.
Rule 5: for what is supposed and would wait, the expected start is looked for, which may take
        as many steps again (``expected_start``).
Rule 6: the nodes that would be held for the lane's gang are supposed to be (``lane.SupposedLane``).
        In which order ``backfill: shortestFirst`` tries others is not forecast.
Rule 7: nothing is committed: all of it is on a hypothesis that is discarded.
Limits: MAX_STEPS searches for a node or for victims; what is not tried by then is said. MAX_PLACES
places are told of one application, MAX_TOLD applications and as many queues.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heapreplace

from services.core.scheduler.actions import gang_places, lane, patience
from services.core.scheduler.actions.gang import lacks_headroom, over_applications, over_headroom
from services.core.scheduler.actions.gang_places import NoPlaces
from services.core.scheduler.intake import updates
from services.core.scheduler.model.queue_ledger import OrderKey
from services.core.scheduler.model.rows import Application, AskGroup, Node, Queue, depth_first
from services.core.scheduler.model.settings import CONSOLIDATION, YUNIKORN
from services.core.scheduler.model.shapes import Ask, Shape
from services.core.scheduler.model.user_table import first_shortage
from services.core.scheduler.ordering import queueing
from services.core.scheduler.policies.expected_start import End, OutOfStepsError, expected
from services.core.scheduler.policies.what_if_queues import UnansweredError, suppose
from services.core.scheduler.policies.what_if_victims import Steps, Victims
from services.core.scheduler.queues.tree import PartitionConfig
from services.core.scheduler.statement.hypothesis import Hypothesis
from services.core.scheduler.statement.partition import Partition
from services.core.scheduler.statement.queue_trial import QueueTrial
from shared.messages.interface import AddApplicationRequest, Allocation
from shared.messages.what_if import (
    Forecast,
    ForecastApplication,
    ForecastPlace,
    ForecastQueue,
    ForecastVictim,
    WhatIf,
)
from shared.model.names import POD_NAME_TAG
from shared.model.reasons import Law, Reason, Refusal
from shared.model.resources import fits_room
from shared.model.states import ApplicationState

MAX_STEPS = 5_000
MAX_PLACES = 1_000
MAX_TOLD = 200
MAX_ADDED = 1_000
_NOT_TRIED = Refusal(Reason.NO_NODE_FITS, f"not tried: a forecast takes {MAX_STEPS} steps at most")


@dataclass(slots=True, eq=False)
class _Waiter:
    """An application that is tried: its asks in order, what was placed of it, and why not more."""

    application: Application
    is_new: bool
    wanted: int
    is_admitted: bool = False
    is_loaded: bool = False
    untried: deque[tuple[AskGroup, Ask]] = field(default_factory=deque)  # that are yet to be tried
    why_not: Refusal | None = None
    placed: list[tuple[Ask, Node]] = field(default_factory=list)
    unplaced: list[tuple[AskGroup, Ask]] = field(default_factory=list)
    after_evictions: list[tuple[Ask, Node]] = field(default_factory=list)

    @property
    def waits_for_promises(self) -> bool:
        """Return whether what others are promised may be all that keeps a gang from starting."""
        refusal = self.why_not
        is_headroom = refusal is not None and refusal.reason is Reason.GANG_HEADROOM
        return is_headroom and self.application.starts_in_part and not self.placed

    def try_again(self) -> None:
        """Let what was not placed be tried once more."""
        again = sorted((*self.unplaced, *self.untried), key=lambda item: item[1].order)
        self.untried = deque(again)
        self.unplaced.clear()
        self.why_not = None
        if self.application.needs_places and not self.placed:
            self.is_admitted = False  # it is by its places alone


def forecast(
    partition: Partition, question: WhatIf, config: PartitionConfig | None = None
) -> Forecast:
    """Return what would become of a question. The partition is as it was before.

    ``config`` is the configuration that it asks about.
    """
    with lane.undisturbed(partition):
        try:
            with Hypothesis(partition) as hypothesis:
                answer = _Forecaster(hypothesis, Steps(MAX_STEPS)).answer(question, config)
        except UnansweredError as error:
            return Forecast(done=False, message=str(error))
        return _with_starts(partition, question, answer)


def _with_starts(partition: Partition, question: WhatIf, answer: Forecast) -> Forecast:
    """Return a forecast with the expected starts of what is supposed and would wait."""
    names = [told.application_id for told in answer.applications if _lacks_start(told)]
    if not names:
        return answer
    steps = Steps(2 * MAX_STEPS)

    def whole(ends: list[End]) -> frozenset[str]:
        with Hypothesis(partition) as hypothesis:
            return _Forecaster(hypothesis, steps).whole(question, ends)

    starts = expected(partition, names, whole)
    told = (
        replace(item, expected_start_ns=starts[name].at_ns, no_start=starts[name].why)
        if (name := item.application_id) in starts
        else item
        for item in answer.applications
    )
    return replace(answer, applications=tuple(told))


_Entry = tuple[tuple[object, ...], int, _Waiter]


class _Forecaster:
    """One forecast."""

    def __init__(self, hypothesis: Hypothesis, steps: Steps) -> None:
        self._hypothesis = hypothesis
        self._partition = hypothesis.partition
        self._steps = steps
        self._rejected: list[ForecastApplication] = []
        self._queues: list[ForecastQueue] = []
        self._lane: lane.SupposedLane | None = None  # from when something is placed
        self._has_whole_gang = False  # one that is: nothing is promised to it any more
        self._is_promise_awaited = False  # by a gang that was refused
        self._is_configured = False  # anew: whoever was refused is tried

    def answer(self, question: WhatIf, config: PartitionConfig | None) -> Forecast:
        """Return the forecast of a question. Raises UnansweredError."""
        if question.drain:
            waiters = self._drain(question.drain)
        elif question.add_nodes:
            self._add_nodes(question.add_nodes, question.like)
            waiters = self._all_waiting()
        elif config is not None:
            self._queues = suppose(self._hypothesis, config)
            self._is_configured = True
            waiters = self._all_waiting()
        else:
            waiters = self._newcomers(question)
        self._place_all(waiters)
        victims = self._victims(waiters, config)
        told = [*map(_told, waiters), *self._rejected]
        told.sort(key=lambda item: not (item.is_new or item.placed))
        return Forecast(
            done=True,
            message=self._unsaid(waiters, victims, config),
            applications=tuple(told[:MAX_TOLD]),
            victims=tuple(victims[:MAX_PLACES]),
            queues=tuple(self._queues[:MAX_TOLD]),
            refused=question.refused,
        )

    def whole(self, question: WhatIf, ends: list[End]) -> frozenset[str]:
        """Return which applications of a question are placed whole, now or after some ends.

        What has room now is placed now; then whoever waits takes turns. Raises OutOfStepsError.
        """
        new = self._newcomers(question)
        self._place_all(new)
        for end in ends:
            self._hypothesis.end_pod(end.application, end.allocation)
        for waiter in new:
            waiter.try_again()
        self._place_all([*self._all_waiting(), *new])
        if self._steps.left <= 0:
            raise OutOfStepsError
        return frozenset(w.application.id for w in new if len(w.placed) == w.wanted)

    def _victims(
        self, waiters: list[_Waiter], config: PartitionConfig | None
    ) -> list[ForecastVictim]:
        """Return who would go for those who wait, and under a configuration for its maxima."""
        wanting = [
            waiter
            for waiter in waiters
            if (waiter.is_new or config is not None)
            and waiter.why_not is not None
            and waiter.why_not.reason in _ROOM_WOULD_HELP
        ]
        leaves = {queue: at for at, queue in enumerate(depth_first(self._partition.root))}
        if config is not None:  # for those who are supposed their own order counts
            wanting.sort(key=lambda waiter: (leaves[waiter.application.queue], _place(waiter)))
        with QueueTrial() as trial:
            victims = Victims(self._partition, trial, self._steps)
            for waiter in wanting:
                asks = [ask for _, ask in waiter.unplaced]
                waiter.after_evictions = victims.preempt_for(waiter.application, asks)
            if config is not None:
                victims.enforce_maxima()
        return victims.told

    def _unsaid(
        self,
        waiters: list[_Waiter],
        victims: list[ForecastVictim],
        config: PartitionConfig | None,
    ) -> str:
        """Say what the forecast leaves open, "" where it does not."""
        settings = self._partition.settings
        waits = any(
            (waiter.is_new or config is not None) and waiter.why_not is not None
            for waiter in waiters
        )
        open_: list[str] = []
        if self._steps.left <= 0:
            open_.append(f"not all was tried: a forecast takes {MAX_STEPS} steps")
        if waits and (settings.policy != YUNIKORN or CONSOLIDATION in settings.actions):
            open_.append(
                f"whom the policy {settings.policy} and its actions would move or evict is not told"
            )
        if any(victim.law == Law.QUOTA for victim in victims):
            open_.append("who would start in the room that queues over their max leave is not told")
        return "; ".join(open_)

    # --- what is supposed -----------------------------------------------------------------------

    def _add_nodes(self, count: int, like: str) -> None:
        model = self._partition.nodes.nodes.get(like)
        if model is None:
            raise UnansweredError(f"there is no node {like!r} to add nodes like")
        if count > MAX_ADDED:
            raise UnansweredError(f"at most {MAX_ADDED} nodes are added, found {count}")
        for number in range(1, count + 1):
            name = f"{like}+{number}"
            labels = {key: name if value == like else value for key, value in model.labels.items()}
            self._hypothesis.add_node(
                Node(name, 0, dict(model.capacity), dict(model.attributes), labels, model.taints,
                     schedulable=True, volume_limits=dict(model.volume_limits))
            )  # fmt: skip

    def _all_waiting(self) -> list[_Waiter]:
        """Return everybody who waits; those for whom a node is kept are tried first."""
        waiters = [
            self._waiter(application, is_new=False)
            for application in self._partition.in_order_asking()
            if application.state in _MAY_START
        ]
        for waiter in waiters:
            if waiter.application.reservations and waiter.is_admitted:
                self._try_reserved(waiter)
        return waiters

    def _try_reserved(self, waiter: _Waiter) -> None:
        """Place the asks that have a node kept, there or elsewhere, where they may be placed now.

        Those whose room is being released wait for that.
        """
        application, nodes = waiter.application, self._partition.nodes
        if patience.refusal(self._partition, application) is not None:
            return
        self._load(waiter)
        for group, ask in list(waiter.untried):
            held = application.reservations.get(ask.key)
            if held is None or held.has_preempted or not self._steps.take(1):
                continue
            if self._no_headroom(application, ask) is not None:
                continue
            is_first = next(iter(held.node.reservations.values())) is held
            node = held.node if is_first and nodes.takes(held.node, ask.shape) else None
            if node is None and not held.is_required:
                node = nodes.best(ask.shape)
            if node is not None:
                waiter.untried.remove((group, ask))
                self._hypothesis.end_reservation(held)
                self._place(waiter, ask, node)
                self._look_at_lane()

    def _newcomers(self, question: WhatIf) -> list[_Waiter]:
        """Suppose the applications of a question, but those that would be rejected."""
        known = self._partition.nodes.pods
        accepted: dict[str, Application] = {}
        for request in question.applications:
            path, reason = updates.path_of(self._partition, request)
            queue = None if reason else self._hypothesis.leaf(path)
            if queue is not None and not reason:
                reason = updates.gang_rejection(self._partition, request, queue)
            if queue is None or reason:
                self._reject(request, path, reason)
            else:
                accepted[request.application_id] = self._hypothesis.application(request, queue)
        for ask in question.asks:
            application = accepted.get(ask.application_id)
            if ask.constraints.asks_about_pods and known.would_learn(ask.constraints):
                raise UnansweredError(
                    f"{ask.allocation_key}: its affinity or spread looks at labels that no pod's "
                    "has looked at before; what it would do is known once it is submitted"
                )
            if application is not None:
                self._hypothesis.ask(application, ask)
        return [self._waiter(application, is_new=True) for application in accepted.values()]

    def _reject(self, request: AddApplicationRequest, path: str, reason: str) -> None:
        name, queue = request.application_id, path or request.queue_name
        told = ForecastApplication(name, queue, 0, 0, is_new=True, rejected=reason)
        self._rejected.append(told)

    def _waiter(self, application: Application, *, is_new: bool) -> _Waiter:
        wanted = sum(len(group.asks) for group in application.groups.values())
        return _Waiter(application, is_new, wanted, not application.awaits_admission)

    @staticmethod
    def _load(waiter: _Waiter) -> None:
        """Bring the asks that may be placed into their order, when they are first looked at."""
        if not waiter.is_loaded:
            waiter.is_loaded = True
            free = _free_groups(waiter.application)
            asks = [(group, ask) for group in free for ask in group.in_order()]
            waiter.untried.extend(sorted(asks, key=lambda item: item[1].order))

    # --- as the cycle would ---------------------------------------------------------------------

    def _place_all(self, waiters: list[_Waiter]) -> None:
        """Place what can be placed, ask by ask, in the order of queues and applications.

        Those for whom no steps are left are not tried. What the lane's gang is held nobody gets.
        """
        if self._lane is None:
            self._lane = lane.SupposedLane(self._hypothesis, are_tried=self._is_configured)
        self._lane.wake()  # nodes may have come, or pods may have gone
        self._lane.look()
        self._lane.has_let_go()  # nobody was refused yet
        closed: dict[Shape, Refusal] = {}
        while not self._place_in_turns(waiters, closed):
            again = [waiter for waiter in waiters if waiter.waits_for_promises]
            if self._lane.has_let_go():
                again = waiters
                closed.clear()
            for waiter in again:
                waiter.try_again()

    def _place_in_turns(self, waiters: list[_Waiter], closed: dict[Shape, Refusal]) -> bool:
        """Place what can be placed; return whether all was tried, and nobody may be once more."""
        by_leaf: dict[Queue, list[_Entry]] = {}
        for number, waiter in enumerate(waiters):
            key = _order(waiter)
            if key is not None:
                by_leaf.setdefault(waiter.application.queue, []).append((key, number, waiter))
        if not self._serve(by_leaf, closed):
            return False
        for entries in by_leaf.values():
            for _, _, waiter in entries:
                waiter.why_not = waiter.why_not or _NOT_TRIED
        return True

    def _serve(self, by_leaf: dict[Queue, list[_Entry]], closed: dict[Shape, Refusal]) -> bool:
        """Serve the leaves in their turns as long as there are steps left.

        Return False where nodes were let go, or a gang is whole to which room was promised: those
        that were refused for it have their turns again.
        """
        for entries in by_leaf.values():
            heapify(entries)
        turns = _Turns(self._partition.root, by_leaf)
        while by_leaf and self._steps.left > 0:
            leaf = turns.next()
            _, number, waiter = by_leaf[leaf][0]
            self._steps.take(turns.cost)
            self._place_next(waiter, closed)
            if self._may_be_tried_again():
                return False
            turns.moved(leaf)
            key = _order(waiter)
            if key is not None:
                heapreplace(by_leaf[leaf], (key, number, waiter))
                continue
            heappop(by_leaf[leaf])
            if not by_leaf[leaf]:
                del by_leaf[leaf]
                turns.leave(leaf)
        return True

    def _may_be_tried_again(self) -> bool:
        is_whole, self._has_whole_gang = self._has_whole_gang, False
        if is_whole and self._is_promise_awaited:
            self._is_promise_awaited = False
            return True
        return self._lane is not None and self._lane.lets_go

    def _place_next(self, waiter: _Waiter, closed: dict[Shape, Refusal]) -> None:
        """Place the next ask of an application, or say why it, or all of them, cannot be placed."""
        application = waiter.application
        self._load(waiter)
        if not waiter.placed:
            refusal = self._may_not_start(waiter)
            if refusal is not None:
                waiter.why_not, waiter.unplaced = refusal, list(waiter.untried)
                waiter.untried.clear()
                self._is_promise_awaited |= waiter.waits_for_promises
                return
            if waiter.placed:
                return  # the whole gang was placed at once
        group, ask = waiter.untried.popleft()
        found = closed.get(ask.shape) or self._node_for(application, ask)
        if isinstance(found, Refusal):
            waiter.why_not = waiter.why_not or found
            waiter.unplaced.append((group, ask))
            if found.reason not in (Reason.QUEUE_QUOTA, Reason.USER_QUOTA, Reason.PLUGIN):
                closed[ask.shape] = found
            return
        self._place(waiter, ask, found)
        self._look_at_lane()

    def _look_at_lane(self) -> None:
        if self._lane is not None:
            self._lane.look()

    def _place(self, waiter: _Waiter, ask: Ask, node: Node) -> None:
        """Suppose an ask placed; nobody need wait behind its application any more."""
        application = waiter.application
        self._hypothesis.place(application, ask, node)
        self._hypothesis.promise(application)
        if application.is_gang and not application.outstanding():
            self._has_whole_gang = True
        waiter.placed.append((ask, node))
        if application.queue.overdue_gang is application:
            self._hypothesis.set(application.queue, overdue_gang=None)

    def _may_not_start(self, waiter: _Waiter) -> Refusal | None:
        """Return why an application may not start; a gang that needs its places gets them."""
        application, partition = waiter.application, self._partition
        if application.is_refused_for(Reason.BACKOFF):
            return application.refusal  # whatever comes, until its time is over
        if self._lane is not None and self._lane.is_asleep(application):
            return application.refusal
        behind = patience.refusal(partition, application)
        if behind is not None:
            return behind
        if application.state is ApplicationState.ACCEPTED:
            over = over_applications(partition, application, may_take_turn=False)
            if over is not None:
                return over[0]
        if waiter.is_admitted:
            return None
        return self._admit(waiter)

    def _admit(self, waiter: _Waiter) -> Refusal | None:
        """Let a gang start, or say what has no room for the whole of it."""
        application = waiter.application
        lacks = lacks_headroom(self._partition, application)
        if lacks is not None:
            if application.needs_places and self._lane is not None:
                self._lane.was_tried(application, is_placed=True)
            return lacks[0]
        waiter.is_admitted = True
        if application.needs_places:
            return self._place_gang(waiter)
        self._hypothesis.admit(application)
        return None

    def _place_gang(self, waiter: _Waiter) -> Refusal | None:
        """Place all placeholders of a gang; what the lane holds is its, if it has it."""
        assert self._lane is not None
        self._lane.let_go(waiter.application)
        refusal = self._place_whole(waiter)
        self._lane.was_tried(waiter.application, is_placed=refusal is None)
        return refusal

    def _place_whole(self, waiter: _Waiter) -> Refusal | None:
        """Place all placeholders of a gang, or say why one has no place."""
        application, nodes = waiter.application, self._partition.nodes
        wanted = gang_places.amount(application)
        if not self._steps.take(len(waiter.untried)):
            return _NOT_TRIED
        backfill = self._partition.settings.backfill
        found: list[tuple[Ask, Node]] | NoPlaces | None
        found = gang_places.bound(nodes, application, backfill=backfill)
        over = over_headroom(application, wanted) if found is None else None
        if over is not None:
            return over[0]
        if found is None:
            had_changed, noted = nodes.pods_changed, nodes.pods.waiting.noted()
            found = gang_places.find(nodes, application, backfill=backfill)
            if not isinstance(found, NoPlaces):
                gang_places.take_back(nodes, found, had_changed=had_changed, noted=noted)
        if isinstance(found, NoPlaces):
            return found.refusal
        self._hypothesis.admit(application)
        for ask, node in found:
            self._place(waiter, ask, node)
        placed = {ask for ask, _ in found}
        waiter.untried = deque(item for item in waiter.untried if item[1] not in placed)
        return None

    def _node_for(self, application: Application, ask: Ask) -> Node | Refusal:
        """Return the node that an ask would go to now, or why there is none."""
        nodes = self._partition.nodes
        if not self._steps.take(1):
            return _NOT_TRIED
        refused = self._no_headroom(application, ask)
        if refused is not None:
            return refused
        name = ask.shape.constraints.required_node
        if not name:
            best = nodes.best(ask.shape, backfill=self._partition.settings.backfill)
            if best is None and lane.is_behind(self._partition, application, ask):
                best = nodes.best_held(ask.shape)
            return best or nodes.refusal(ask.shape)
        node = nodes.nodes.get(name)
        is_kept = node is not None and any(
            not held.is_ordinary for held in node.reservations.values()
        )
        if node is not None and not is_kept:
            if nodes.takes(node, ask.shape):
                return node
            if fits_room(node.capacity, ask.shape.resource):
                self._hypothesis.keep_node(application, ask, node)  # as the cycle would
                self._look_at_lane()
        return Refusal(
            Reason.REQUIRED_NODE,
            f"the required node {name} is missing, full or kept for others",
        )

    def _no_headroom(self, application: Application, ask: Ask) -> Refusal | None:
        """Return what user, group, queue or plugin say to an ask."""
        amount = ask.shape.resource
        user = first_shortage(application, amount)
        if user is not None:
            return Refusal(Reason.USER_QUOTA, str(user[1]), limit=user[1])
        short = application.queue.first_without_room(amount, count_kept=not ask.has_kept_room)
        if short is not None:
            return Refusal(Reason.QUEUE_QUOTA, str(short[1]), limit=short[1])
        refused = self._partition.no_capacity(application, amount)
        return refused[0] if refused is not None else None

    # --- a node that is drained -----------------------------------------------------------------

    def _drain(self, name: str) -> list[_Waiter]:
        """Suppose that a node is closed and its pods are made again; return whose they are."""
        node = self._partition.nodes.nodes.get(name)
        if node is None:
            raise UnansweredError(f"there is no node {name!r} to drain")
        self._hypothesis.close_node(node)
        waiters: dict[str, _Waiter] = {}
        for key, allocation in list(node.allocations.items()):
            application = self._partition.applications.get(allocation.application_id)
            if (
                application is None
                or allocation.constraints.required_node
                or (key in application.released)
            ):
                continue
            waiter = waiters.setdefault(
                application.id, _Waiter(application, is_new=False, wanted=0)
            )
            waiter.wanted += 1
            self._move(waiter, allocation)
        return list(waiters.values())

    def _move(self, waiter: _Waiter, allocation: Allocation) -> None:
        """Find a pod that is evicted another place."""
        nodes = self._partition.nodes
        if not self._steps.take(1):
            waiter.why_not = waiter.why_not or _NOT_TRIED
            return
        ask = self._hypothesis.ask_like(allocation)
        node = nodes.best(ask.shape, backfill=self._partition.settings.backfill)
        if node is None:
            waiter.why_not = waiter.why_not or nodes.refusal(ask.shape)
            return
        self._hypothesis.come(node, replace(allocation, node_id=node.node_id))
        waiter.placed.append((ask, node))


_CHILDREN_A_STEP = 200
_MAY_START = (ApplicationState.ACCEPTED, ApplicationState.RUNNING)
_ROOM_WOULD_HELP = (Reason.QUEUE_QUOTA, Reason.NO_NODE_FITS, Reason.GANG_HEADROOM)


def _lacks_start(told: ForecastApplication) -> bool:
    """Return whether an application that is supposed would have to wait, all of it or a part."""
    return told.is_new and not told.rejected and told.placed < told.wanted


def _place(waiter: _Waiter) -> tuple[object, ...]:
    """Return an application's place in its leaf."""
    return waiter.application.order


def _free_groups(application: Application) -> list[AskGroup]:
    """Return the groups of asks that their own application does not hold back."""
    groups = application.groups.values()
    return [group for group in groups if group.asks and queueing.hold(application, group) is None]


def _order(waiter: _Waiter) -> tuple[object, ...] | None:
    """Return what orders applications of a leaf, by their heads; None where nothing is left."""
    if waiter.is_loaded:
        first = waiter.untried[0][1].order if waiter.untried else None
    else:
        heads = [group.head() for group in _free_groups(waiter.application)]
        first = min((head.order for head in heads if head is not None), default=None)
    if first is None:
        return None
    application = waiter.application
    return (*application.order_at(application.in_use()), *first)


class _Turns:
    """Which leaf is served next of those that have somebody to place.

    A queue's place is worked out when something was placed in it, and not anew for each.
    """

    def __init__(self, root: Queue, leaves: Iterable[Queue]) -> None:
        self._root = root
        self._below: dict[Queue, dict[Queue, None]] = {}
        self._keys: dict[Queue, OrderKey] = {}
        self.cost = 1  # of the last turn, in steps
        for leaf in leaves:
            for queue in leaf.lineage():
                if queue.parent is not None:
                    self._below.setdefault(queue.parent, {})[queue] = None

    def next(self) -> Queue:
        """Walk down to the leaf."""
        queue, looked = self._root, 0
        while queue in self._below:
            children = self._below[queue]
            looked += len(children)
            queue = min(children, key=self._key) if len(children) > 1 else next(iter(children))
        self.cost = 1 + looked // _CHILDREN_A_STEP
        return queue

    def _key(self, queue: Queue) -> OrderKey:
        key = self._keys.get(queue)
        if key is None:
            assert queue.parent is not None
            key = self._keys[queue] = queue.parent.order_of_children()(queue)
        return key

    def moved(self, leaf: Queue) -> None:
        """Forget the places of a leaf and of those above it."""
        for queue in leaf.lineage():
            self._keys.pop(queue, None)

    def leave(self, leaf: Queue) -> None:
        """Take a leaf out in which nobody is left."""
        queue = leaf
        while queue.parent is not None:
            above = self._below[queue.parent]
            del above[queue]
            if above:
                return
            del self._below[queue.parent]
            queue = queue.parent


def _told(waiter: _Waiter) -> ForecastApplication:
    application, refusal = waiter.application, waiter.why_not
    return ForecastApplication(
        application.id,
        application.queue.path,
        waiter.wanted,
        len(waiter.placed),
        after_evictions=len(waiter.after_evictions),
        is_gang=application.is_gang,
        is_new=waiter.is_new,
        reason=refusal.reason if refusal is not None else "",
        message=refusal.message if refusal is not None else "",
        places=tuple(
            ForecastPlace(ask.key, ask.request.allocation_tags.get(POD_NAME_TAG, ""), node.node_id)
            for ask, node in [*waiter.placed, *waiter.after_evictions][:MAX_PLACES]
        ),
    )
