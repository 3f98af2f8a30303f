"""The sentence of every reason and kind of refusal, word for word: there is no other writer."""

from shared.messages.state import Waiting
from shared.model.amounts import amounts_text
from shared.model.gpus import GPU, GPU_SHARE
from shared.model.reasons import (
    Fact,
    HeldNodes,
    Kind,
    NodeEvidence,
    NodeFailures,
    Reason,
    Refusal,
    Shortage,
)
from shared.model.resources import go_map
from shared.model.sentences import (
    IT,
    condition_text,
    cure_text,
    fact_text,
    left_text,
    period_text,
    plain_text,
    text_of,
    why_text,
)
from shared.model.units import seconds
from tests.table import each_row

GIB = 2**30
AMOUNT = {"vcore": 4000, "memory": 64 * GIB, GPU: 2, "pods": 1}
ROOM = {"vcore": 1500, "memory": 512 * 2**20}
NODES = NodeEvidence(
    3,
    {"m5": 3},
    (NodeFailures("m5", "vcore", 2), NodeFailures("m5", "taints", 1, "{gpu: true}")),
    "n1",
    {"vcore": 500},
)
CAUSES = "(2 Insufficient cpu, 1 node(s) had untolerated taint {gpu: true})"
NEAREST = "the nearest, n1, lacks 0.5 vcore"
NEED = "4 vcore, 64 GiB memory, 2 GPUs"


def shortage(owner="queue root.a", queue="root.a", resource="memory", left=10 * GIB, most=90 * GIB):
    return Shortage(owner, queue, resource, left, most, AMOUNT)


LEFT = "64 GiB memory, and queue root.a has 10 GiB memory left of its 90 GiB memory"
BY_LIMIT = [
    (shortage(), f"one of its pods needs {LEFT}"),
    (
        shortage("user al", "root.a", "vcore", -500, 8000),
        "one of its pods needs 4 vcore, and user al has 0 vcore left of its 8 vcore in queue root.a",
    ),
    (
        shortage("group g h", "root.a", GPU, 1, 8),
        "one of its pods needs 2 GPUs, and group g h has 1 GPU left of its 8 GPUs in queue root.a",
    ),
    (
        shortage("queue root", "root", "vcore", 1000, 8000),
        "one of its pods needs 4 vcore, and the nodes together have 1 vcore left of 8 vcore",
    ),
    (
        shortage("queue root", "root", GPU, 0, 0),
        "one of its pods needs 2 GPUs, and no node has nvidia.com/gpu",
    ),
]
BY_NODES = {
    Reason.NO_NODES: "none of the 3 nodes is open to new pods",
    Reason.NO_NODE_FITS: "none of the 3 nodes has enough free now",
    Reason.NODE_TOO_SMALL: "none of the 3 nodes is large enough for it, even when empty",
    Reason.CONSTRAINTS: "none of the 3 nodes meets its constraints",
    Reason.OTHER_PODS: "other pods keep it off all 3 nodes",
    Reason.RESERVED: "the nodes with enough free are reserved for pods that have waited longer",
    Reason.TOPOLOGY: "none of the 3 nodes is in the domain of its gang and has enough free",
}
BY_KIND = [
    (
        Fact(Kind.OVERDUE_GANG, "root.a", period_ns=seconds(300)),
        (
            "a gang ahead of it in queue root.a has waited longer than the starvationGuard of 5m, so "
            "no application behind that gang starts before it"
        ),
    ),
    (Fact(Kind.NOT_ALLOCATED, count=3), "3 placeholders of the gang are not allocated yet"),
    (Fact(Kind.NOT_ALLOCATED, count=1), "1 placeholder of the gang is not allocated yet"),
    (Fact(Kind.NOT_REQUESTED), "no placeholder of the gang has been requested yet"),
    (
        Fact(Kind.PARTLY_REQUESTED, amount=AMOUNT, room=ROOM),
        (
            f"of the gang's {NEED} only 1.5 vcore, 512 MiB memory has been requested so far, as "
            "placeholders"
        ),
    ),
    (
        Fact(Kind.LACKS_MEMBERS, count=1, total=3),
        ("the gang restarts only as a whole: 1 of its 3 missing members has been requested so far"),
    ),
    (
        Fact(Kind.MAKING_WAY, "tg", count=2),
        (
            "placeholders of task group tg are released to make room for larger pods, and 2 of the "
            "application are still there"
        ),
    ),
    (
        Fact(Kind.TO_REPLACE, "tg", count=2),
        "task group tg has 2 placeholders that must be replaced first",
    ),
    (Fact(Kind.UNCONFIRMED), "the release of its placeholder is not confirmed yet"),
    (
        Fact(Kind.RUNNING, "queue root.a", "", 2, 2),
        "queue root.a runs 2 applications, and the limit is 2",
    ),
    (
        Fact(Kind.RUNNING, "user al", "root.a", 2, 2),
        "user al runs 2 applications in queue root.a, and the limit is 2",
    ),
    (
        Fact(Kind.STARTING, "app", "root.a"),
        "application app of queue root.a is starting, and the queue starts one application at a time",
    ),
    (
        Fact(Kind.BACKED_OFF, count=3, period_ns=seconds(30)),
        "3 pods of it found no node, so it is not tried for 30s",
    ),
    (
        Fact(Kind.MADE_WAY, period_ns=seconds(60)),
        "its gang has its minimum and made way for others, so it does not grow for 1m",
    ),
    (
        Fact(Kind.DEVICE_RELEASING, "n1"),
        "its part of a shared GPU of node n1 is being released",
    ),
    (Fact(Kind.NODE_MISSING, "n1"), "the required node n1 does not exist"),
    (
        Fact(Kind.NODE_CLOSED, "n1"),
        "it does not match the required node n1, or does not tolerate its taints",
    ),
    (
        Fact(Kind.NODE_SMALL, "n1", amount=AMOUNT, room=ROOM),
        f"{NEED} requested, and the required node n1 has 1.5 vcore, 512 MiB memory even when empty",
    ),
    (
        Fact(Kind.NODE_FULL, "n1", amount=AMOUNT, room=ROOM),
        (
            f"{NEED} requested, and the required node n1, which is reserved for it, has 1.5 vcore, "
            "512 MiB memory free now"
        ),
    ),
    (
        Fact(Kind.NODE_TAKEN, "n1"),
        "the required node n1 is missing, full or reserved for other pods",
    ),
    (
        Fact(Kind.CLAIM_IN_USE, "ns/c", count=1, names=("n1", "n2")),
        "PersistentVolumeClaim ns/c is ReadWriteOncePod and 1 other pod uses it, on n1, n2",
    ),
    (
        Fact(Kind.VOLUME_COUNT, "ebs", count=2, nodes=3, total=4, most=25),
        "2 more volumes of ebs would be too many on 3 of the 4 nodes, whose limit is 25 each",
    ),
    (
        Fact(Kind.VOLUME_COUNT, "ebs", count=1, nodes=2, total=2, most=1, with_room=2),
        (
            "2 nodes have enough free, but 1 more volume of ebs would be too many on 2 of the 2 "
            "nodes, whose limit is 1 each"
        ),
    ),
    (Fact(Kind.PLUGIN, "p", text="not today"), "plugin p: not today"),
    (Fact(Kind.PLUGIN, text="plugin p: no node may be taken"), "plugin p: no node may be taken"),
    (
        Fact(Kind.OTHERS_FIRST, amount={"a": 2, "b": 1}),
        "other pods of the gang start first: 2 of a, 1 of b",
    ),
    (
        Fact(Kind.FILTER, "maintenance", count=3),
        "3 nodes passed the other checks and failed on: maintenance",
    ),
    (Fact(Kind.TOO_FEW, "tg"), "too few pods of task group tg wait for them to start together"),
    (
        Fact(Kind.DOMAINS, "rack", text="b1/r3", count=14, total=16, nodes=40),
        "of 40 domains of level rack the best, b1/r3, has places for 14 of 16 members",
    ),
    (
        Fact(Kind.DOMAINS, "rack", text="r3", count=1, total=2, nodes=4, with_room=2, names=("t",)),
        (
            "of 4 domains of level rack the best, r3, has places for 1 of 2 members; 2 full nodes "
            "there are used by t"
        ),
    ),
    (
        Fact(Kind.SLICES, "rack", count=32, total=64, most=16),
        (
            "in slices of 16 pods, each in one domain of level rack, the nodes have places for 32 of "
            "64"
        ),
    ),
    (Fact(Kind.WORDS, text="no such queue"), "no such queue"),
    (Fact(Kind.NOT_TRIED, count=9), "not tried: a forecast makes at most 9 steps"),
    (
        Fact(Kind.LARGER_THAN_MAX, queue="root.a", amount=AMOUNT, room=ROOM),
        f"the gang needs {NEED}, and the max of queue root.a is 1.5 vcore, 512 MiB memory",
    ),
    (
        Fact(Kind.LARGER_THAN_PLACEHOLDER, "tg", amount=AMOUNT, room=ROOM),
        f"a pod of task group tg needs {NEED}, and its placeholders hold 1.5 vcore, 512 MiB memory",
    ),
]
PLACES = (
    "there is room for {}2 of its 3 members, on 1 of the 3 nodes; another needs "
    f"{NEED}, and the nearest node, n1, lacks 0.5 vcore"
)
BY_REST = {Kind.FIXED, Kind.WHOLE_GANG, Kind.ANY_MEMBER, Kind.NODES, Kind.PLACES, Kind.MOST_PLACES}


@each_row(("limit", "text"), BY_LIMIT)
def test_a_limit_says_what_it_leaves(limit, text):
    assert text_of(Refusal(Reason.QUEUE_QUOTA, limit=limit)) == text


def test_a_limit_says_for_whom():
    of_pod = text_of(Refusal(Reason.USER_QUOTA, limit=shortage()), IT)
    assert of_pod == f"it needs {LEFT}"
    fixed = Refusal(Reason.QUEUE_QUOTA, Fact(Kind.FIXED), limit=shortage())
    assert text_of(fixed, IT) == (
        f"it may not be preempted, so it must fit the guaranteed quota: it needs {LEFT}"
    )
    for kind, what in (
        (Kind.WHOLE_GANG, "the whole gang"),
        (Kind.ANY_MEMBER, "a member of its gang"),
    ):
        refusal = Refusal(Reason.GANG_HEADROOM, Fact(kind), limit=shortage())
        assert text_of(refusal) == text_of(refusal, IT) == f"{what} needs {LEFT}"


@each_row("reason", BY_NODES)
def test_nodes_say_what_they_lack(reason):
    fact = Fact(Kind.NODES, count=2, amount=AMOUNT)
    assert text_of(Refusal(reason, fact, NODES)) == f"{BY_NODES[reason]} {CAUSES}; {NEAREST}"
    none = Refusal(reason, fact, NodeEvidence(0, {}))
    assert text_of(none) == "there is no node with any capacity"


ONE_NODE = {
    Reason.NO_NODES: "the only node is closed to new pods",
    Reason.NO_NODE_FITS: "the only node does not have enough free now",
    Reason.NODE_TOO_SMALL: "the only node is too small for it, even when empty",
    Reason.CONSTRAINTS: "the only node does not meet its constraints",
    Reason.OTHER_PODS: "other pods keep it off the only node",
    Reason.RESERVED: "the only node is reserved for pods that have waited longer",
    Reason.TOPOLOGY: (
        "the only node is not in the domain of its gang, or does not have enough free"
    ),
    Reason.PLUGIN: "the only node does not take it",
}


@each_row("reason", ONE_NODE)
def test_a_cluster_of_one_node_is_no_plural(reason):
    refusal = Refusal(reason, Fact(Kind.NODES), NodeEvidence(1, {"m5": 1}))
    assert text_of(refusal) == ONE_NODE[reason]


def test_a_gang_without_any_place_says_so():
    fact = Fact(Kind.MOST_PLACES, count=0, total=3, amount={"vcore": 1000})
    assert text_of(Refusal(Reason.GANG_PLACES, fact, NODES)) == (
        "there is no room for any of its 3 members on the 3 nodes; each needs 1 vcore, and the "
        "nearest node, n1, lacks 0.5 vcore"
    )
    one = NodeEvidence(1, {"m5": 1}, (NodeFailures("m5", "vcore", 1),))
    fact = Fact(Kind.PLACES, count=2, total=3, nodes=1, amount={"vcore": 1000})
    assert text_of(Refusal(Reason.GANG_PLACES, fact, one)) == (
        "there is room for 2 of its 3 members on the only node; another needs 1 vcore, and no node "
        "has that (1 Insufficient cpu)"
    )


def test_what_yunikorn_writes_as_a_map_is_shown_with_units():
    text = "Request 'a' does not fit in queue 'root.q' (requested %s, available %s)"
    shown = plain_text(text % (go_map({"vcore": 4000, "memory": GIB}), go_map({"vcore": -500})))
    assert shown == text % ("4 vcore, 1 GiB memory", "-0.5 vcore")
    assert plain_text(text % ("map[]", "map[string]string")) == text % (
        "nothing",
        "map[string]string",
    )
    assert plain_text("ResourceReservationTimeout").startswith(
        "the gang did not get all its places"
    )


def test_durations_leave_out_units_that_are_zero():
    texts = [period_text(seconds(number)) for number in (0, 30, 60, 90, 3600, 3660, 5400)]
    assert texts == ["0s", "30s", "1m", "1m30s", "1h", "1h1m", "1h30m"]


def test_every_kind_has_its_sentence_here():
    assert {fact.kind for fact, _ in BY_KIND} | BY_REST == set(Kind)
    assert [fact_text(fact) for fact, _ in BY_KIND] == [text for _, text in BY_KIND]


def test_a_gang_says_how_many_have_a_place_and_which_nodes_are_held_for_it():
    fact = Fact(Kind.PLACES, count=2, total=3, nodes=1, amount=AMOUNT)
    assert text_of(Refusal(Reason.GANG_PLACES, fact, NODES)) == PLACES.format("")
    most = Fact(Kind.MOST_PLACES, count=2, total=3, nodes=1, amount=AMOUNT, text="plugin p: no")
    assert (
        text_of(Refusal(Reason.GANG_PLACES, most, NODES))
        == f"{PLACES.format('at most ')}; plugin p: no"
    )
    closed = NodeEvidence(3, {"m5": 3}, (NodeFailures("m5", "plugin", 3),))
    assert text_of(Refusal(Reason.GANG_PLACES, fact, closed)) == (
        "there is room for 2 of its 3 members, on 1 of the 3 nodes; another needs "
        f"{NEED}, and no node has that (3 node(s) were refused by a plugin)"
    )
    at_ns = 1_767_225_600 * 10**9
    for held, text in (
        (
            HeldNodes(("n1", "n2"), 3, at_ns, at_ns + seconds(90)),
            (
                "; it has been first in line (the head gang) since 2026-01-01 00:00:00 UTC; nodes "
                "n1, n2 and 3 more are reserved for it; it is expected to start by "
                "2026-01-01 00:01:30 UTC"
            ),
        ),
        (
            HeldNodes(("n1",), 0, at_ns),
            (
                "; it has been first in line (the head gang) since 2026-01-01 00:00:00 UTC; node n1 "
                "is reserved for it; when it will start is not known"
            ),
        ),
    ):
        whole = Fact(Kind.WHOLE_GANG, held=held)
        refusal = Refusal(Reason.GANG_PLACES, whole, limit=shortage())
        assert text_of(refusal) == f"the whole gang needs {LEFT}{text}"


def test_the_lead_of_every_reason():
    leads = {reason: why_text("pod", "p", reason, "x") for reason in Reason}
    waits = [reason for reason, text in leads.items() if text == "pod p waits: x."]
    assert waits == [
        Reason.QUEUE_QUOTA,
        Reason.USER_QUOTA,
        Reason.GANG_HEADROOM,
        Reason.RESERVED,
        Reason.OTHER_PODS,
        Reason.NO_NODES,
    ]
    assert {r: t[6:-4] for r, t in leads.items() if r not in waits} == {
        Reason.GANG_PLACES: "waits until its whole gang fits",
        Reason.GANG_PATIENCE: "waits its turn",
        Reason.GANG_PLACEHOLDERS_PENDING: "waits for the rest of its gang",
        Reason.AWAITING_REPLACEMENT: "waits to replace its placeholders",
        Reason.REPLACING: "is about to start",
        Reason.MAX_APPLICATIONS: "waits for another application to end",
        Reason.ANOTHER_STARTING: "waits for another application to start",
        Reason.BACKOFF: "is retried later",
        Reason.REQUIRED_NODE: "waits for the one node it must run on",
        Reason.NO_NODE_FITS: "waits for room",
        Reason.NODE_TOO_SMALL: "cannot start",
        Reason.CONSTRAINTS: "cannot start",
        Reason.VOLUMES: "waits for its volumes",
        Reason.DEVICES: "waits for its devices",
        Reason.TOPOLOGY: "waits for room where its gang is",
        Reason.PLUGIN: "is held back by a plugin",
        Reason.APPLICATION_ENDING: "waits for its previous run to end",
        Reason.POD_GROUP: "waits for its PodGroup",
        Reason.SCHEDULING_GATED: "waits for its scheduling gates",
        Reason.POD_REFUSED: "cannot be scheduled",
        Reason.MISSING_RIGHTS: "is held up by the API server",
    }
    assert why_text("pod", "p", "OF_A_LATER_VERSION", "x") == "pod p waits: x."


def test_what_a_core_of_another_version_says_is_shown_as_far_as_it_goes():
    before = Waiting("a", Reason.QUEUE_QUOTA, "as it was said before", 0, None, shortage())
    assert before.text == "as it was said before"
    later = Waiting("a", Reason.QUEUE_QUOTA, "", 0, None, shortage(), Fact("of a later version"))
    assert later.text == f"one of its pods needs {LEFT}"
    assert Waiting("a", "LATER", "", 0, NODES).text.startswith("none of the 3 nodes takes it (")


def test_the_condition_of_a_pod_is_in_kubernetes_words():
    refusal = Refusal(Reason.NO_NODE_FITS, Fact(Kind.NODES, amount=AMOUNT), NODES)
    assert condition_text(refusal) == f"0/3 nodes are available: {CAUSES[1:-1]}."
    named = Refusal(Reason.PLUGIN, Fact(Kind.PLUGIN, text="plugin p: no"), NODES)
    assert condition_text(named) == f"0/3 nodes are available: {CAUSES[1:-1]}. plugin p: no"
    assert condition_text(Refusal(Reason.QUEUE_QUOTA, limit=shortage())) == (
        f"one of its pods needs {LEFT}"
    )


def test_amounts_are_in_units_of_people():
    amounts = {
        "vcore": 2_500_000_125,
        "memory": 3 * 2**50,
        "ephemeral-storage": 10 * GIB,
        "hugepages-2Mi": 4 * 2**20,
        GPU: 1,
        GPU_SHARE: 250,
        "example.com/fpga": 7,
        "pods": 110,
        "none": 0,
    }
    assert amounts_text(amounts) == (
        "2500000.125 vcore, 3 PiB memory, 10 GiB ephemeral-storage, 7 example.com/fpga, "
        "4 MiB hugepages-2Mi, 0.25 GPU shares, 1 GPU"
    )
    assert amounts_text({"pods": 2}) == "2 pods"
    assert amounts_text({"memory": 1023}) == "1023 memory"


def test_what_would_help_is_said_of_what_most_nodes_fail_on():
    assert cure_text(NODES, NEED) == "0.5 vcore more free on n1"
    closed = NodeEvidence(2, {"m5": 2}, (NodeFailures("m5", "unschedulable", 2),))
    assert cure_text(closed, NEED) == "one of 2 nodes opened to new pods again"
    assert left_text(shortage()) == "queue root.a has 10 GiB memory left of its 90 GiB memory"
