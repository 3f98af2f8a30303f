"""What if: a question changes nothing, and its forecast, carried out, comes true."""

from dataclasses import replace

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from services.core.scheduler.model.queue_ledger import DRAINING
from services.core.scheduler.policies import what_if
from shared.messages.envelope import CORE, Envelope
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    NodeAction,
    NodeInfo,
    TerminationType,
    UpdateConfiguration,
    UpdateRequest,
    UserGroupInformation,
)
from shared.messages.what_if import QueueChange, WhatIf
from shared.model.names import RUN_SECONDS
from shared.model.resources import multiply
from tests.builders import START_NS, Core, config_of
from tests.property.dump import dump, whole
from tests.property.histories import MODES as HISTORIES
from tests.property.histories import History
from tests.property.material import SELECTORS

CONFIG = config_of(
    "{name: a, resources: {max: {vcore: 12}, guaranteed: {vcore: 4}}}",
    "{name: b, maxapplications: 3, limits: [{limit: l, users: [alice], maxresources: {vcore: 5}}]}",
    "{name: c}",
)
PLAIN = [constraints for constraints in SELECTORS if not constraints.asks_about_pods]
APPLICATIONS = st.lists(
    st.tuples(
        st.sampled_from(("root.a", "root.b", "root.c")),
        st.booleans(),  # a gang
        st.integers(1, 5),  # pods
        st.integers(1, 4),  # cores of each
        st.sampled_from(PLAIN),
        st.sampled_from(("alice", "bob")),
        st.integers(0, 1),  # priority
    ),
    min_size=1,
    max_size=7,
)
PLACED = (("gangAdmission", "cluster"),)
LANE = (*PLACED, ("reservations", "gang"))
MODES = {
    "queue": (("gangAdmission", "queue"),),
    "cluster": PLACED,
    "partial": (("gangAdmission", "partial"),),
    "muster": (("preset", "muster"),),
    "lane": LANE,
    "backfill": (*PLACED, ("backfill", "enabled")),
    "backfilled lane": (*LANE, ("backfill", "enabled")),
    "yunikorn": (("preset", "yunikorn"),),
}
WAYS = st.sampled_from(tuple(MODES))


def request_of(number, wanted):
    """Return an application with the asks that its gang, or it itself, begins with."""
    queue, is_gang, pods, cores, constraints, user, priority = wanted
    name, amount = f"app{number}", {"vcore": 1000 * cores, "pods": 1}
    request = AddApplicationRequest(
        name,
        queue,
        ugi=UserGroupInformation(user, (user,)),
        placeholder_ask=multiply(amount, pods) if is_gang else {},
    )
    asks = tuple(
        AllocationAsk(
            f"{name}-{at}",
            name,
            amount,
            priority=priority,
            placeholder=is_gang,
            task_group_name="tg" if is_gang else "",
            constraints=constraints,
        )
        for at in range(pods)
    )
    return request, asks


def submit(core, number, wanted):
    request, asks = request_of(number, wanted)
    core.update(new_applications=(request,))
    return core.update(asks=asks)


def cluster(way, applications, nodes=3, config=CONFIG):
    core = Core(config, settings=MODES[way])
    for at in range(nodes):
        labels = {"zone": "z" if at else "y", "kubernetes.io/hostname": f"n{at}"}
        core.update(
            nodes=(
                NodeInfo(f"n{at}", NodeAction.CREATE, {"vcore": 5000, "pods": 5}, labels=labels),
            )
        )
    for number, wanted in enumerate(applications):
        submit(core, number, wanted)
    return core


def asked(core, question):
    """Ask, and see that the partition is as it was, and that nothing was told to anybody else."""
    before, seq = dump(core.partition), core.scheduler._seq
    config = core.scheduler._parse(question.queues) if question.queues else None
    answers = what_if.forecast(core.partition, question, config)
    assert dump(core.partition) == before
    core.check()
    out = core.scheduler.handle(question_of(question), core.now_ns)
    out += core.scheduler.flush(core.now_ns)
    assert [item.message for item in out] == [answers]
    assert (out[0].to.routing_key, out[0].reply_to) == ("api.one", "api.one#1")
    assert core.scheduler._seq == seq
    return answers


def question_of(question, number=1):
    return Envelope(f"q{number}", "WhatIf", question, CORE, "api", reply_to=f"api.one#{number}")


def places(core, name):
    application = core.partition.applications.get(name)
    held = application.allocations.values() if application is not None else ()
    return {allocation.allocation_key: allocation.node_id for allocation in held}


def plain(*leaf_pods_cores_node):
    """Return applications of single asks; ``node``: each requires n2."""
    return [
        (leaf, False, pods, cores, PLAIN[3 if needs_node else 0], "alice", 0)
        for leaf, pods, cores, needs_node in leaf_pods_cores_node
    ]


AT_A_NODE = plain(*[("root.a", 1, 1, False)] * 5, ("root.a", 2, 3, True), ("root.a", 1, 1, True))


@given(WAYS, APPLICATIONS)
@example("queue", AT_A_NODE)  # a node that is kept for another that requires it
def test_what_would_start_starts_there(way, applications):
    *there, new = applications
    core = cluster(way, there)
    number = len(there)
    request, asks = request_of(number, new)
    (told,) = asked(core, WhatIf(applications=(request,), asks=asks)).applications
    responses = submit(core, number, new)
    assert places(core, request.application_id) == {
        place.allocation_key: place.node_id for place in told.places[: told.placed]
    }
    is_rejected = request.application_id not in core.partition.applications
    assert bool(told.rejected) == is_rejected
    assert told.wanted == (0 if is_rejected else len(asks))
    assert responses is not None


@settings(max_examples=max(200, settings().max_examples))
@given(st.sampled_from(tuple(HISTORIES)), st.integers(0, 2**31))
@example("lane, shortest first", 54)  # one of those that the lane's gang lets pass comes later
def test_what_is_asked_before_a_submission_is_what_it_does_and_leaves_no_trace(mode, seed):
    history, unasked = History(mode, seed), History(mode, seed)
    request, asks = history.new
    before = whole(history.core.partition)
    (told,) = what_if.forecast(
        history.core.partition, WhatIf(applications=(request,), asks=asks)
    ).applications
    assert whole(history.core.partition) == before
    places = {place.allocation_key: place.node_id for place in told.places[: told.placed]}
    assert history.submit() == unasked.submit() == places
    assert history.go_on(2) == unasked.go_on(2)


ALICE = ("root.b", False, 4, 4, PLAIN[0], "alice", 1)
IN_TURN = [  # whose turn it is follows what waits in a queue, and of what priority
    ("root.c", False, 4, 4, PLAIN[0], "bob", 1),
    ("root.a", True, 3, 4, PLAIN[0], "bob", 0),
    ("root.c", False, 3, 4, PLAIN[0], "bob", 0),
]
MANY_RUN = [  # who is supposed to start counts among those that run
    ("root.b", False, 4, 1, PLAIN[0], "bob", 1),
    ("root.b", False, 5, 1, PLAIN[0], "bob", 0),
    ALICE,
    ("root.b", True, 1, 3, PLAIN[0], "bob", 0),
]


BEHIND = [  # a gang has the lane: the node that comes is held for it, not for the older pod
    ("root.c", False, 3, 5, PLAIN[0], "bob", 0),
    ("root.c", True, 3, 5, PLAIN[0], "bob", 0),
]


SLEEPS = [  # a gang that the nodes have no room for is not tried, and keeps the lane
    ("root.a", True, 3, 3, PLAIN[2], "bob", 0),
    ("root.a", False, 4, 1, PLAIN[0], "bob", 0),
    ("root.c", False, 3, 4, PLAIN[0], "bob", 0),
]
SLEEPS_IN_PART = [
    ("root.a", True, 4, 3, PLAIN[0], "bob", 0),
    ("root.a", False, 1, 4, PLAIN[0], "bob", 0),
    ("root.c", False, 4, 1, PLAIN[0], "bob", 0),
    ("root.c", False, 4, 2, PLAIN[0], "bob", 0),
]


KEPT = [  # a node that is kept for an ask which requires it is lost to the lane's gang
    ("root.a", True, 4, 3, PLAIN[0], "bob", 0),
    ("root.c", False, 5, 2, PLAIN[0], "bob", 0),
    ("root.c", False, 5, 1, PLAIN[2], "bob", 0),
    ("root.a", False, 1, 2, PLAIN[3], "bob", 0),
]
LETS_GO = [  # nodes that the lane's gang needs no more, as others have come
    ("root.a", False, 5, 1, PLAIN[0], "bob", 0),
    ("root.c", True, 4, 2, PLAIN[2], "bob", 0),
    ("root.b", True, 1, 3, PLAIN[3], "bob", 1),
]
NEXT = [  # of nodes that are free as soon those that were held for the last gang are the next one's
    ("root.a", True, 4, 3, PLAIN[0], "bob", 0),
    ("root.a", False, 2, 4, PLAIN[0], "bob", 0),
    ("root.b", True, 5, 2, PLAIN[0], "bob", 0),
    ("root.b", False, 2, 1, PLAIN[2], "bob", 0),
]


ALIKE = [("root.b", True, 4, 3, PLAIN[0], "bob", 0)] * 2  # what comes holds one of them, not none
WOKEN = [  # a gang that nodes have come for is tried before the lane is given to it
    ("root.c", False, 3, 3, PLAIN[2], "bob", 0),
    ("root.a", True, 2, 3, PLAIN[0], "bob", 0),
    ("root.c", True, 2, 3, PLAIN[0], "bob", 0),
]
IN_ITS_TURN = [  # one that has the lane, and an older one that has not
    ("root.b", True, 4, 3, PLAIN[0], "bob", 0),
    ("root.b", False, 2, 2, PLAIN[0], "bob", 0),
    ("root.b", True, 2, 4, PLAIN[0], "bob", 0),
    ("root.a", False, 1, 3, PLAIN[3], "bob", 0),
]


@given(WAYS, APPLICATIONS, st.integers(1, 3))
@example("muster", ALIKE, 3)
@example("lane", WOKEN, 2)
@example("backfilled lane", IN_ITS_TURN, 3)
@example("lane", KEPT, 1)
@example("backfilled lane", LETS_GO, 3)
@example("backfilled lane", NEXT, 3)
@example("lane", SLEEPS, 1)
@example("backfilled lane", SLEEPS_IN_PART, 1)
@example("muster", BEHIND, 1)
@example("lane", BEHIND, 1)
@example("backfilled lane", BEHIND, 1)
@example("queue", IN_TURN, 3)
@example("queue", MANY_RUN, 3)
def test_who_would_start_on_more_nodes_does(way, applications, more):
    core = cluster(way, applications)
    held = {name: places(core, name) for name in core.partition.applications}
    answer = asked(core, WhatIf(add_nodes=more, like="n1"))
    assert answer.done
    model = core.partition.nodes.nodes["n1"]
    infos = tuple(
        NodeInfo(
            f"n1+{at}",
            NodeAction.CREATE,
            model.capacity,
            labels=model.labels | {"kubernetes.io/hostname": "n1"},
        )
        for at in range(1, more + 1)
    )
    infos = tuple(
        replace(info, labels={key: info.node_id if value == "n1" else value
                              for key, value in model.labels.items()})
        for info in infos
    )  # fmt: skip
    core.send(UpdateRequest("rm", nodes=infos))
    for told in answer.applications:
        name = told.application_id
        new = {k: v for k, v in places(core, name).items() if k not in held[name]}
        assert len(new) == told.placed
    waiting = {told.application_id for told in answer.applications}
    for name in core.partition.applications:
        if name not in waiting:
            assert places(core, name) == held[name]


PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "application.sort.policy": st.sampled_from(("fair", "fifo")),
        "application.sort.priority": st.just("disabled"),
        "priority.offset": st.sampled_from(("'5'", "'-5'")),
        "priority.policy": st.just("fence"),
        "preemption.policy": st.sampled_from(("fence", "disabled")),
        "quota.preemption.delay": st.just("1s"),
    },
)
LIMITS = st.lists(
    st.sampled_from(
        (  # whom, how many cores and how many applications at most; 0: no limit
            ("users: [alice]", 3, 0),
            ("users: [bob]", 0, 1),
            ("groups: [alice]", 6, 0),
            ("groups: [bob]", 0, 2),
        )
    ),
    max_size=2,
    unique=True,
)
QUEUES = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.one_of(st.none(), st.integers(1, 20)),  # max
        st.one_of(st.none(), st.integers(1, 12)),  # guaranteed
        st.integers(0, 3),  # applications at most
        PROPERTIES,
        LIMITS,
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda queue: queue[0],
)
PARTITION = st.sampled_from(
    ("", "nodesortpolicy: {type: binpacking}", "preemption: {quotapreemptionenabled: true}")
)


TIGHT = config_of(
    "{name: a, resources: {max: {vcore: 3}, guaranteed: {vcore: 2}}}",
    "{name: b, maxapplications: 1, limits: [{limit: l, users: [alice], maxresources: {vcore: 2}}]}",
    "{name: c, resources: {max: {vcore: 5}}, properties: {application.sort.policy: fair}}",
)
TO_FAIR = [  # a gang that waits with those that are refused alike, in another order from now on
    *plain(*[("root.a", 1, 1, False)] * 3),
    ("root.b", True, 2, 3, PLAIN[0], "alice", 0),
]
FAIR = {"application.sort.policy": "fair"}
OPEN = [(name, None, None, 0, {}, []) for name in "ab"]
GATHERS = [  # by shares a gang that is getting its members is where it was before the first
    ("root.a", False, 1, 1, PLAIN[0], "alice", 0),
    ("root.b", False, 2, 2, PLAIN[0], "alice", 0),
    ("root.b", True, 2, 2, PLAIN[0], "alice", 0),
]
PROMISED = [  # once the first gang is whole nothing is promised that the second could not have
    ("root.b", True, 2, 2, PLAIN[0], "alice", 0),
    ("root.b", True, 2, 2, PLAIN[0], "bob", 1),
]
WITHDRAWN = [  # whose admission is withdrawn stands by all that it holds
    ("root.b", True, 3, 2, PLAIN[0], "alice", 0),
    ("root.b", False, 1, 1, PLAIN[0], "bob", 0),
]


def configuration(queues, more=""):
    """Return a queues.yaml of leaves below the root."""
    leaves = []
    for name, most, guaranteed, applications, properties, limits in queues:
        amounts = []
        if most is not None:
            amounts.append(f"max: {{vcore: {most}}}")
        if guaranteed is not None:
            amounts.append(f"guaranteed: {{vcore: {min(guaranteed, most or guaranteed)}}}")
        held = [
            f"{{limit: l, {whom}, "
            + (f"maxresources: {{vcore: {cores}}}}}" if cores else f"maxapplications: {apps}}}")
            for whom, cores, apps in limits
            if cores <= (most or cores) and apps <= (applications or apps)
        ]
        said = ", ".join(f"{key}: {value}" for key, value in properties.items())
        leaves.append(
            f"{{name: {name}, resources: {{{', '.join(amounts)}}}, maxapplications: {applications}"
            f", properties: {{{said}}}, limits: [{', '.join(held)}]}}"
        )
    text = config_of(*leaves)
    return text.replace("name: default, ", f"name: default, {more}, ") if more else text


@given(WAYS, APPLICATIONS, QUEUES, PARTITION, st.sampled_from((4, 7)))
@example("queue", TO_FAIR, [OPEN[0], ("b", None, None, 0, FAIR, [])], "", 3)
@example("queue", GATHERS, [OPEN[0], ("b", None, None, 0, FAIR, [])], "", 4)
@example("partial", PROMISED, [("b", 6, None, 2, {}, [])], "", 4)
@example("yunikorn", WITHDRAWN, [("b", 4, None, 2, FAIR, [])], "", 7)
def test_what_a_configuration_would_do_it_does(way, applications, queues, more, nodes):
    core = cluster(way, applications, nodes, TIGHT)
    held = {name: places(core, name) for name in core.partition.applications}
    was = set(core.partition.queues)
    text = configuration(queues, more)
    answer = asked(core, WhatIf(queues=text))
    assert answer.done, answer.message
    core.send(UpdateConfiguration(text))
    for told in answer.applications:
        name = told.application_id
        new = {k: v for k, v in places(core, name).items() if k not in held[name]}
        assert new == {place.allocation_key: place.node_id for place in told.places[: told.placed]}
    for name in held.keys() - {told.application_id for told in answer.applications}:
        assert places(core, name) == held[name]
    now = core.partition.queues
    kinds = {told.queue_name: told.change for told in answer.queues}
    assert {path for path, kind in kinds.items() if kind is QueueChange.COMES} == now.keys() - was
    drain = {path for path, queue in now.items() if queue.status == DRAINING}
    assert {path for path, kind in kinds.items() if kind is QueueChange.DRAINS} == drain


@given(
    WAYS,
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 20)), min_size=1, max_size=9),
    st.integers(1, 6),
    st.integers(1, 3),
    st.booleans(),
)
def test_whoever_is_expected_has_started_then_and_not_before(way, running, pods, cores, is_gang):
    config = config_of("{name: a}", "{name: c, resources: {max: {vcore: 9}}}")
    core = cluster(way, [], config=config)
    core.application("old", "root.a")
    for at, (size, stated) in enumerate(running):
        tags = {RUN_SECONDS: str(stated)} if stated else {}
        amount = {"vcore": 1000 * size, "pods": 1}
        core.asks("old", [f"old-{at}"], amount, allocation_tags=tags)
    held = places(core, "old")
    assume(len(held) == len(running))  # nobody else waits
    request, asks = request_of(1, ("root.c", is_gang, pods, cores, PLAIN[0], "alice", 0))
    (told,) = (
        told
        for told in asked(core, WhatIf(applications=(request,), asks=asks)).applications
        if told.is_new
    )
    submit(core, 1, ("root.c", is_gang, pods, cores, PLAIN[0], "alice", 0))
    ends = {}
    for at, (_, stated) in enumerate(running):
        if stated:
            ends.setdefault(stated, []).append(f"old-{at}")
    expected = (told.expected_start_ns - START_NS) // 10**9 if told.expected_start_ns else None
    is_whole = [(0, len(places(core, "app1")) == pods)]
    for seconds, keys in sorted(ends.items()):
        gone = [AllocationRelease("old", key, TerminationType.STOPPED_BY_RM) for key in keys]
        core.update(releases=tuple(gone))
        is_whole.append((seconds, len(places(core, "app1")) == pods))
    first = next((seconds for seconds, whole in is_whole if whole), None)
    if told.placed == pods:
        assert (first, expected, told.no_start) == (0, None, "")
    elif "app1" in core.partition.applications:
        assert (first, bool(told.no_start)) == (expected, expected is None)


@given(WAYS, APPLICATIONS, st.sampled_from(("n0", "n1", "nowhere")))
def test_a_node_that_would_be_drained_is_as_before(way, applications, node):
    core = cluster(way, applications)
    answer = asked(core, WhatIf(drain=node))
    if node == "nowhere":
        assert answer.message == "there is no node 'nowhere' to drain"
        return
    wanted = {told.application_id: told.wanted for told in answer.applications if told.wanted}
    held = core.partition.nodes.nodes[node].allocations.values()
    assert sum(wanted.values()) == len(held)
    assert all(place.node_id != node for told in answer.applications for place in told.places)
