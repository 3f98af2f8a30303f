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
from shared.model.sentences import (
    IT,
    condition_text,
    cure_text,
    fact_text,
    left_text,
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
    (shortage(), f"one of its asks needs {LEFT}"),
    (
        shortage("user al", "root.a", "vcore", -500, 8000),
        "one of its asks needs 4 vcore, and user al has 0 vcore left of its 8 vcore in queue root.a",
    ),
    (
        shortage("group g h", "root.a", GPU, 1, 8),
        "one of its asks needs 2 GPUs, and group g h has 1 GPU left of its 8 GPUs in queue root.a",
    ),
    (
        shortage("queue root", "root", "vcore", 1000, 8000),
        "one of its asks needs 4 vcore, and the nodes together have 1 vcore left of 8 vcore",
    ),
    (
        shortage("queue root", "root", GPU, 0, 0),
        "one of its asks needs 2 GPUs, and no node has nvidia.com/gpu",
    ),
]
BY_NODES = {
    Reason.NO_NODES: "none of 3 nodes is open",
    Reason.NO_NODE_FITS: "none of 3 nodes has it now",
    Reason.NODE_TOO_SMALL: "none of 3 nodes could hold it when empty",
    Reason.CONSTRAINTS: "none of 3 nodes is one that it may use",
    Reason.OTHER_PODS: "other pods leave none of 3 nodes open to it",
    Reason.RESERVED: "the nodes with the room are reserved for pods that have waited longer",
    Reason.TOPOLOGY: "none of 3 nodes is in the domain of its gang with the room",
}
BY_KIND = [
    (
        Fact(Kind.OVERDUE_GANG, "root.a", period_ns=seconds(300)),
        (
            "a gang ahead of it in queue root.a has waited for longer than starvationGuard 5m0s: no "
            "application behind that gang starts before it"
        ),
    ),
    (Fact(Kind.NOT_ALLOCATED, count=3), "3 placeholders of the gang are not allocated yet"),
    (Fact(Kind.NOT_REQUESTED), "none of the placeholders of the gang has been requested yet"),
    (
        Fact(Kind.PARTLY_REQUESTED, amount=AMOUNT, room=ROOM),
        f"placeholders for 1.5 vcore, 512 MiB memory of {NEED} have been requested",
    ),
    (
        Fact(Kind.LACKS_MEMBERS, count=1, total=3),
        (
            "the gang starts again only as a whole: 1 of the 3 members that it lacks have been "
            "requested"
        ),
    ),
    (
        Fact(Kind.MAKING_WAY, "tg", count=2),
        (
            "task group tg: placeholders make way for larger pods, 2 of the application have yet to "
            "go"
        ),
    ),
    (Fact(Kind.TO_REPLACE, "tg", count=2), "task group tg has 2 placeholders left to replace"),
    (Fact(Kind.UNCONFIRMED), "the release of its placeholder is not confirmed yet"),
    (
        Fact(Kind.RUNNING, "queue root.a", "", 2, 2),
        "queue root.a runs 2 of at most 2 applications",
    ),
    (
        Fact(Kind.RUNNING, "user al", "root.a", 2, 2),
        "user al runs 2 of at most 2 applications in queue root.a",
    ),
    (
        Fact(Kind.STARTING, "app", "root.a"),
        "application app of queue root.a is starting: one at a time",
    ),
    (
        Fact(Kind.BACKED_OFF, count=3, period_ns=seconds(30)),
        "no node took 3 of its asks: left out for 30s",
    ),
    (
        Fact(Kind.DEVICE_RELEASING, "n1"),
        "its part of a shared GPU of node n1 is being released",
    ),
    (Fact(Kind.NODE_MISSING, "n1"), "the required node n1 does not exist"),
    (Fact(Kind.NODE_CLOSED, "n1"), "the required node n1 does not match the pod, or has a taint"),
    (
        Fact(Kind.NODE_SMALL, "n1", amount=AMOUNT, room=ROOM),
        f"the required node n1 has 1.5 vcore, 512 MiB memory when empty: {NEED} requested",
    ),
    (
        Fact(Kind.NODE_FULL, "n1", amount=AMOUNT, room=ROOM),
        f"the required node n1 is reserved and has 1.5 vcore, 512 MiB memory left: {NEED} requested",
    ),
    (
        Fact(Kind.NODE_TAKEN, "n1"),
        "the required node n1 is missing, full or kept for others",
    ),
    (
        Fact(Kind.CLAIM_IN_USE, "ns/c", count=1, names=("n1", "n2")),
        "claim ns/c is ReadWriteOncePod and used by 1 other pod(s), on n1, n2",
    ),
    (
        Fact(Kind.VOLUME_COUNT, "ebs", count=2, nodes=3, total=4, most=25),
        "2 more volume(s) of ebs are too many for 3 of 4 nodes, which take at most 25 each",
    ),
    (
        Fact(Kind.VOLUME_COUNT, "ebs", count=1, nodes=2, total=2, most=1, with_room=2),
        "2 nodes have the room, and 1 more volume(s) of ebs are too many for 2 of 2 nodes, which take at most 1 each",
    ),
    (Fact(Kind.PLUGIN, "p", text="not today"), "plugin p: not today"),
    (Fact(Kind.PLUGIN, text="plugin p: no node may be taken"), "plugin p: no node may be taken"),
    (
        Fact(Kind.OTHERS_FIRST, amount={"a": 2, "b": 1}),
        "other pods of the gang come first: 2 of a, 1 of b",
    ),
    (Fact(Kind.FILTER, "maintenance", count=3), "3 nodes are left, and fail on: maintenance"),
    (Fact(Kind.TOO_FEW, "tg"), "fewer pods of task group tg wait than start together"),
    (
        Fact(Kind.DOMAINS, "rack", text="b1/r3", count=14, total=16, nodes=40),
        "rack: best of 40 is b1/r3 with 14 of 16 places",
    ),
    (
        Fact(Kind.DOMAINS, "rack", text="r3", count=1, total=2, nodes=4, with_room=2, names=("t",)),
        "rack: best of 4 is r3 with 1 of 2 places; 2 full nodes there are taken by t",
    ),
    (
        Fact(Kind.SLICES, "rack", count=32, total=64, most=16),
        "in slices of 16 by rack the nodes have places for 32 of 64",
    ),
    (Fact(Kind.WORDS, text="no such queue"), "no such queue"),
    (Fact(Kind.NOT_TRIED, count=9), "not tried: a forecast takes 9 steps at most"),
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
    f"2 of 3 members have a place, on 1 of 3 nodes; requested {NEED}, the nearest node for one more, "
    "n1, lacks 0.5 vcore"
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
        f"it may not be preempted, and the quota is less: it needs {LEFT}"
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


def test_every_kind_has_its_sentence_here():
    assert {fact.kind for fact, _ in BY_KIND} | BY_REST == set(Kind)
    assert [fact_text(fact) for fact, _ in BY_KIND] == [text for _, text in BY_KIND]


def test_a_gang_says_how_many_have_a_place_and_which_nodes_are_held_for_it():
    fact = Fact(Kind.PLACES, count=2, total=3, nodes=1, amount=AMOUNT)
    assert text_of(Refusal(Reason.GANG_PLACES, fact, NODES)) == PLACES
    most = Fact(Kind.MOST_PLACES, count=2, total=3, nodes=1, amount=AMOUNT, text="plugin p: no")
    assert text_of(Refusal(Reason.GANG_PLACES, most, NODES)) == f"at most {PLACES}; plugin p: no"
    closed = NodeEvidence(3, {"m5": 3}, (NodeFailures("m5", "plugin", 3),))
    assert text_of(Refusal(Reason.GANG_PLACES, fact, closed)) == (
        "2 of 3 members have a place, on 1 of 3 nodes; none takes one more of "
        f"{NEED} (3 node(s) were refused by a plugin)"
    )
    at_ns = 1_767_225_600 * 10**9
    for held, text in (
        (
            HeldNodes(("n1", "n2"), 3, at_ns, at_ns + seconds(90)),
            (
                "; it has been the head gang since 2026-01-01 00:00:00 UTC, and these nodes are "
                "reserved for it: n1, n2 and 3 more; it is "
                "expected to start by 2026-01-01 00:01:30 UTC"
            ),
        ),
        (
            HeldNodes(("n1",), 0, at_ns),
            (
                "; it has been the head gang since 2026-01-01 00:00:00 UTC, and these nodes are "
                "reserved for it: n1; when it starts is not known"
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
        Reason.GANG_PLACES: "waits for places for its whole gang",
        Reason.GANG_PATIENCE: "waits its turn",
        Reason.GANG_PLACEHOLDERS_PENDING: "waits for its gang",
        Reason.AWAITING_REPLACEMENT: "waits to take its placeholders' places",
        Reason.REPLACING: "is about to start",
        Reason.MAX_APPLICATIONS: "waits for another application to end",
        Reason.ANOTHER_STARTING: "waits for another application to start",
        Reason.BACKOFF: "is left out for a while",
        Reason.REQUIRED_NODE: "waits for the one node that it must have",
        Reason.NO_NODE_FITS: "waits for room",
        Reason.NODE_TOO_SMALL: "cannot start",
        Reason.CONSTRAINTS: "cannot start",
        Reason.VOLUMES: "waits for its volumes",
        Reason.DEVICES: "waits for its devices",
        Reason.TOPOLOGY: "waits for room where its gang is",
        Reason.PLUGIN: "is held back by a plugin",
        Reason.APPLICATION_ENDING: "waits for the end of what was before it",
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
    assert later.text == f"one of its asks needs {LEFT}"
    assert Waiting("a", "LATER", "", 0, NODES).text.startswith("none of 3 nodes takes it (")


def test_the_condition_of_a_pod_is_in_kubernetes_words():
    refusal = Refusal(Reason.NO_NODE_FITS, Fact(Kind.NODES, amount=AMOUNT), NODES)
    assert condition_text(refusal) == f"0/3 nodes are available: {CAUSES[1:-1]}."
    named = Refusal(Reason.PLUGIN, Fact(Kind.PLUGIN, text="plugin p: no"), NODES)
    assert condition_text(named) == f"0/3 nodes are available: {CAUSES[1:-1]}. plugin p: no"
    assert condition_text(Refusal(Reason.QUEUE_QUOTA, limit=shortage())) == (
        f"one of its asks needs {LEFT}"
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
    assert cure_text(closed, NEED) == "one of 2 closed nodes open again"
    assert left_text(shortage()) == "queue root.a has 10 GiB memory left of its 90 GiB memory"
