"""Why: the sentence and the evidence of each reason, and of what waits for nothing."""

from functools import partial
from pathlib import Path

import pytest

from services.api.why.standing import why
from services.core.scheduler.statement import partition
from shared.messages.constraints import AttachedVolume, Constraints
from shared.messages.interface import (
    AllocationRelease,
    GangSchedulingStyle,
    HeldFor,
    NodeAction,
    NodeInfo,
    PodsHeld,
    RemoveApplicationRequest,
    TerminationType,
)
from shared.messages.state import StateDelta
from shared.model.amounts import amounts_text
from shared.model.reasons import Reason
from shared.model.sentences import state_text
from shared.model.states import ApplicationState
from tests.builders import config_of
from tests.unit.api.following import System

SCENARIOS = Path(__file__).parents[2] / "conformance" / "scenarios"
HELD_BACK = {  # by a cluster that is not simulated, with their golden sentences
    Reason.POD_GROUP: "waits for its PodGroup: m",
    Reason.SCHEDULING_GATED: "waits for its scheduling gates: m",
    Reason.POD_REFUSED: "cannot be scheduled: m",
    Reason.MISSING_RIGHTS: "is held up by the API server: m",
    Reason.VOLUMES: "waits for its volumes: m",
    Reason.DEVICES: "waits for its devices: m",
}
HERE = {Reason.GANG_PLACEHOLDERS_PENDING, Reason.PLUGIN, *HELD_BACK}


def asked(system, name):
    found = why(system.model, name)
    assert found is not None
    return found.model_dump(by_alias=True)


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_a_scenario_with_its_golden_sentence(reason):
    if reason not in HERE:
        text = (SCENARIOS / f"why-{reason}.yaml").read_text()
        assert f"reason: {reason}\n" in text
        assert "sentence: >-\n" in text


def test_real_asks_wait_for_the_placeholders_of_their_gang():
    system = System()
    system.node("n1", vcore=2, pods=9)
    system.gang("g", 3, {"vcore": 1})
    system.asks("g", ["real"], {"vcore": 1}, task_group_name="tg")
    assert asked(system, "real")["sentence"] == (
        "pod real waits for the rest of its gang: 1 placeholder of the gang is not allocated yet."
    )
    assert asked(system, "g")["reason"] != Reason.GANG_PLACEHOLDERS_PENDING  # it only follows


def test_a_plugin_is_named():
    def register(policy):
        policy.feasible.append(lambda _, __: False)

    system = System(plugins={"strict": register})
    system.node("n1", vcore=2, pods=9)
    system.application("a")
    system.asks("a", ["p"], {"vcore": 1})
    answer = asked(system, "a")
    assert answer["reason"] == Reason.PLUGIN
    assert (
        answer["sentence"]
        == "application a is held back by a plugin: plugin strict: none of 1 matching nodes may be taken."
    )


def test_volumes_are_counted():
    """The simulated cluster has none, and so no scenario has."""
    system = System()
    nodes = (NodeInfo("n1", NodeAction.CREATE, {"vcore": 9}, volume_limits={"disk": 1}),)
    system.update(nodes=nodes)
    system.application("a")
    disk = Constraints(volumes=(AttachedVolume("disk"),))
    system.asks("a", ["p", "q"], {"vcore": 1}, constraints=disk)
    answer = asked(system, "q")
    assert answer["reason"] == Reason.VOLUMES
    assert answer["sentence"] == (
        "pod q waits for its volumes: 1 node has enough free, but 1 more volume of disk would be too "
        "many on the only node, whose limit is 1."
    )
    assert answer["nodes"]["classes"][0]["fails"] == [{"what": "volumes", "nodes": 1}]


def held(application, *rows):
    return {"pods_held": (PodsHeld(application, rows),)}


@pytest.mark.parametrize("reason", HELD_BACK)
def test_what_was_never_asked_for_is_explained_of_who_nobody_knows(reason):
    system = System()
    system.update(**held("a", HeldFor(reason, "m", 7, 5, ("uid-p", "uid-q"), ("p", "q"))))
    answer = asked(system, "a")
    assert (answer["sentence"], answer["verdict"], answer["since"]) == (
        f"application a {HELD_BACK[reason]}.", "waiting", 5,
    )  # fmt: skip
    assert asked(system, "q")["sentence"] == f"pod q {HELD_BACK[reason]}."
    assert asked(system, "uid-q")["applicationID"] == "a"
    (row,) = answer["waits"]
    assert (row["asks"], row["pods"], row["heldBack"]) == (7, ["p", "q"], True)
    system.update(**held("a"))
    assert why(system.model, "a") is None


def test_what_is_held_back_of_one_that_has_ended_or_was_rejected_is_why_it_waits():
    system = System(config_of("{name: q}"))
    system.application("a", "root.nowhere")
    system.application("b", "root.q")
    system.update(remove_applications=(RemoveApplicationRequest("b"),))
    assert [asked(system, name)["verdict"] for name in "ab"] == ["rejected", "ended"]
    for name in "ab":
        system.update(**held(name, HeldFor(Reason.POD_GROUP, "m", 1, 5, ("u",), ("p",))))
        assert asked(system, name)["reason"] == Reason.POD_GROUP
    system.update(**held("a"))
    assert asked(system, "a")["verdict"] == "rejected"


def test_no_more_applications_than_a_limit_are_kept_that_hold_pods_back(monkeypatch):
    monkeypatch.setattr(partition, "MAX_HELD", 2)
    system = System()
    row = HeldFor(Reason.POD_GROUP, "m", 1)
    for name in ("a", "b", "c", "b"):
        system.update(**held(name, row))
    assert list(system.partition.pods_held) == list(system.model.pods_held) == ["a", "b"]
    system.update(**held("a"))
    system.update(**held("c", row))
    assert list(system.model.pods_held) == ["b", "c"]


def test_of_what_is_said_twice_in_a_batch_the_last_counts_and_nobodys_end_is_told():
    system = System()
    row = HeldFor(Reason.POD_GROUP, "m", 1)
    system.application("a")
    before = len(system.answers)
    system.update(**held("x"))
    assert not [item for item in system.answers[before:] if isinstance(item.message, StateDelta)]
    system.update(
        pods_held=(PodsHeld("a", (row,)), PodsHeld("a"), PodsHeld("b"), PodsHeld("b", (row,)))
    )
    assert system.answers[-1].message.pods_held == (PodsHeld("a"), PodsHeld("b", (row,)))


def test_what_runs_and_what_has_its_turn_next_says_so():
    system = System()
    system.application("a")
    assert asked(system, "a")["sentence"] == ("application a has no pods yet.")
    system.asks("a", ["p"], {"vcore": 1})
    assert asked(system, "a")["reason"] == asked(system, "p")["reason"] == "NO_NODES"
    (path,) = [path for path, refusals in system.model.refusals.items() if refusals.by_asks]
    refusals = system.model.refusals.pop(path)  # before anybody refuses it
    assert asked(system, "a")["verdict"] == asked(system, "p")["verdict"] == "starting"
    system.model.refusals[path] = refusals
    system.node("n1", vcore=2, pods=9)
    assert asked(system, "a")["sentence"] == ("application a runs 1 pod, and no pod of it waits.")
    assert asked(system, "p")["sentence"] == "pod p runs on n1."


def test_who_was_evicted_reads_by_whom_and_under_which_law():
    owed = "resources: {guaranteed: {vcore: 4}}, properties: {preemption.delay: 1s}"
    system = System(config_of("{name: a}", f"{{name: b, {owed}}}"))
    system.node("n1", vcore=4, pods=9)
    system.application("victim", "root.a")
    system.asks("victim", ["v"], {"vcore": 4})
    system.application("owed", "root.b")
    system.asks("owed", ["o"], {"vcore": 4})
    system.fire_own("preemption")
    (row,) = asked(system, "victim")["evictions"]
    assert (row["role"], row["winner"], row["ask"], row["law"]) == (
        "victim", "owed", "o", "guarantee",
    )  # fmt: skip
    assert asked(system, "owed")["evictions"][0]["role"] == "winner"
    text = "Preempted by o from application owed in root.b"
    assert asked(system, "v")["sentence"] == f"pod v on n1 is being released: {text}."
    assert asked(system, "v")["verdict"] == "evicted"


TIMED_OUT = (
    "the gang did not get all its places within its placeholder timeout "
    "(ResourceReservationTimeout)"
)


def walked(system, name, met):
    """Read what is said of an application in the state that it is in now."""
    answer = asked(system, name)
    met[answer["state"]] = answer["verdict"]
    return answer["sentence"].removeprefix(f"application {name} ")


def released(system, name):
    """Have the resource manager confirm every release that the core has decided."""
    application = system.partition.applications[name]
    system.update(
        releases=tuple(
            AllocationRelease(name, key, TerminationType(why))
            for key, why in application.released.items()
        )
    )


def test_every_state_of_an_application_has_its_sentence():
    """An application walks through all states; none of them is said of another one."""
    system, met = System(config_of("{name: q}")), {}
    say = partial(walked, system, met=met)
    system.application("a", "root.nowhere")
    assert say("a").startswith("was rejected: failed to place application a")

    system.application("b", "root.q")
    assert say("b") == "has no pods yet."
    system.asks("b", ["p"], {"vcore": 1})
    assert met["New"] == "starting"
    assert say("b").startswith("waits: there is no node")
    assert met["Accepted"] == "waiting"
    system.node("n1", vcore=3, pods=9)
    assert say("b") == "runs 1 pod, and no pod of it waits."
    system.update(releases=(AllocationRelease("b", "p", TerminationType.STOPPED_BY_RM),))
    assert say("b") == (
        "is completing: all its pods have ended, and after half a minute without new pods it is "
        "Completed."
    )
    system.fire("b", "completing")
    assert say("b") == "has completed."

    for style, name in ((GangSchedulingStyle.HARD, "c"), (GangSchedulingStyle.SOFT, "d")):
        more = {"gang_scheduling_style": style, "placeholder_timeout_milli_seconds": 1000}
        system.gang(name, 2, {"vcore": 2}, queue="root.q", **more)  # room for one of them
        system.fire(name, "placeholder")
        if name == "c":
            assert say("c") == f"is failing: {TIMED_OUT}; 1 pod has not ended yet."
        else:
            assert say("d") == (
                "did not get its whole gang in time and continues without gang scheduling: its pods "
                "start once 1 placeholder has been released."
            )
        released(system, name)
    assert say("c") == f"has failed: {TIMED_OUT}."
    assert say("d") == "has no pods yet."
    assert {*met} | {"Expired"} == {*ApplicationState}
    assert met["Completing"] == met["Failing"] == "ending"
    assert state_text("Expired", 0, 0, 0, "") == "ended long ago"


async def test_an_unknown_name_is_404_and_evictions_are_listed():
    system = System()
    answer = await system.get("/v1/why/nobody")
    assert (answer.status_code, answer.json()["message"]) == (
        404, "no application and no pod is called nobody",
    )  # fmt: skip
    assert (await system.get("/v1/evictions")).json() == []


def test_amounts_are_read_as_people_write_them():
    assert amounts_text({"pods": 1, "memory": 2**30, "vcore": 1500}) == "1.5 vcore, 1 GiB memory"
    assert amounts_text({"pods": 3}) == "3 pods"
    assert amounts_text({}) == "nothing"
