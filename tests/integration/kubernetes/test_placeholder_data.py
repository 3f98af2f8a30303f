"""What is told of a gang's placeholders, a task group at a time, as people do things to their pods."""

import json

import pytest

from tests.integration.kubernetes.test_backend import GROUP, POLICY, QUEUES, TASK_GROUPS
from tests.kubernetes.double import a_pod
from tests.kubernetes.harness import muster_over
from tests.patience import until


@pytest.fixture(params=["", "yunikorn"])
async def muster(server, request):
    """Run Muster's own way of admitting gangs, and YuniKorn's: the counts are the same.

    YuniKorn makes no lost placeholder again, so the preset does not either: here it does.
    """
    preset = {}
    if request.param:
        preset["muster.scheduler.preset"] = request.param
        preset["muster.scheduler.remakePlaceholders"] = "enabled"
    await server.kubectl.config(QUEUES, **preset)
    await server.kubectl.node("n1", cpu="4", memory="8Gi", pods="20")
    async with muster_over(server.access, server.kubectl) as running:
        yield running


def groups_of(*groups):
    return json.dumps(
        [
            {"name": name, "minMember": members, "minResource": {"cpu": "10m"}, **more}
            for name, members, more in groups
        ]
    )


NOWHERE = {"nodeSelector": {"zone": "nowhere"}}


def driver(name, app, groups, policy, group=""):
    annotations = {TASK_GROUPS: groups, POLICY: policy}
    if group:
        annotations[GROUP] = group
    labels = {"applicationId": app, "queue": "root.a"}
    return a_pod(name, cpu="10m", labels=labels, annotations=annotations)


def counts(muster, name):
    return {
        one.task_group_name: (one.count, one.timedout, one.replaced)
        for one in muster.model.application(name).summary.placeholders
    }


@pytest.mark.parametrize("members", [("",), ("b",), ("", "a", "b"), ("a", "a", "a", "b", "b", "b")])
async def test_both_groups_of_a_failed_hard_gang_count_as_timed_out(muster, members):
    groups = groups_of(("a", 3, NOWHERE), ("b", 3, {}))
    policy = "placeholderTimeoutInSeconds=2 gangSchedulingStyle=Hard"
    for number, group in enumerate(members):
        await muster.kubectl.pod(driver(f"m{number}", "gang", groups, policy, group))
    await until(lambda: muster.model.application("gang") is not None, "the gang")
    await until(lambda: muster.model.application("gang").summary.state == "Failed", "the timeout")
    assert counts(muster, "gang") == {"a": (3, 3, 0), "b": (3, 3, 0)}


async def placeholders_there(muster):
    """Return the placeholders that are bound, by name."""
    pods = await muster.kubectl.pods()
    bound = [name for name, pod in pods.items() if pod["spec"].get("nodeName")]
    return sorted(name for name in bound if name.startswith("tg-"))


async def test_placeholders_that_are_deleted_by_hand_are_counted_once(muster):
    groups = groups_of(("a", 3, {}), ("b", 1, NOWHERE))
    await muster.kubectl.pod(driver("m0", "gang", groups, "placeholderTimeoutInSeconds=600"))
    await until(lambda: muster.model.application("gang") is not None, "the gang")

    async def three():
        there = await placeholders_there(muster)
        return there if len(there) == 3 else None

    first = await until(three, "three are bound")
    for name in first:
        await muster.kubectl.delete(name)

    async def others():
        there = await three()
        return there is not None and not {*there} & {*first}

    await until(others, "others are, in their stead")
    await until(lambda: counts(muster, "gang")["a"] == (3, 0, 0), "they are counted once")
    assert counts(muster, "gang") == {"a": (3, 0, 0), "b": (1, 0, 0)}


async def reserving(muster, policy=""):
    """Let a job of three reserve its group, and another group be nowhere."""
    groups = groups_of(("a", 3, NOWHERE), ("b", 3, {}))
    for number in range(3):
        await muster.kubectl.pod(driver(f"m{number}", "gang", groups, policy, "b"))

    async def three_are_bound():
        return len(await placeholders_there(muster)) == 3

    await until(three_are_bound, "the placeholders of b")


async def only(muster, *names):
    async def are_only_they_there():
        return set(await muster.kubectl.pods()) == set(names)

    await until(are_only_they_there, f"no pods but {names}")


async def test_a_job_that_is_deleted_while_its_gang_reserves_is_completing(muster):
    await reserving(muster)
    for number in range(3):
        await muster.kubectl.delete(f"m{number}")
    await only(muster)
    await until(lambda: muster.model.application("gang").summary.state == "Completing", "its end")
    gang = muster.model.application("gang")
    assert not gang.allocations
    assert counts(muster, "gang") == {"a": (3, 3, 0), "b": (3, 3, 0)}
    assert muster.model.queues["root.a"].allocated == {}


async def test_a_pod_that_comes_again_starts_its_gang_anew_at_once(muster):
    await reserving(muster)
    for number in range(3):
        await muster.kubectl.delete(f"m{number}")
    await only(muster)
    await until(lambda: muster.model.application("gang").summary.state == "Completing", "its end")
    first = muster.model.application("gang").summary.submission
    await reserving(muster)
    again = muster.model.application("gang").summary
    assert (again.state, again.submission != first) == ("Accepted", True)
    assert counts(muster, "gang") == {"a": (3, 0, 0), "b": (3, 0, 0)}


async def test_a_group_that_is_announced_by_a_pod_in_none_is_replaced_by_a_job_in_it(muster):
    """As YuniKorn's spec annotation_taskgroup_def."""
    groups = groups_of(("a", 5, {}))
    await muster.kubectl.pod(driver("driver", "gang", groups, "placeholderTimeoutInSeconds=600"))
    await until(lambda: "driver" in muster.kubelets.ran, "the pod that announces it")
    assert muster.model.application("gang").summary.state == "Running"
    assert counts(muster, "gang") == {"a": (5, 0, 0)}
    for number in range(5):
        await muster.kubectl.pod(driver(f"m{number}", "gang", groups, "", "a"))
    await only(muster, "driver", *(f"m{number}" for number in range(5)))
    await until(lambda: counts(muster, "gang") == {"a": (5, 0, 5)}, "all are replaced")
    names = {f"m{number}" for number in range(5)}
    await until(lambda: names <= set(muster.kubelets.ran), "all of them run")


async def test_a_soft_gang_that_is_given_up_counts_all_as_timed_out(muster):
    """As YuniKorn's spec default_style_soft."""
    groups = groups_of(("a", 3, {}), ("b", 1, NOWHERE))
    for number in range(3):
        await muster.kubectl.pod(
            driver(f"m{number}", "gang", groups, "placeholderTimeoutInSeconds=2")
        )
    names = {f"m{number}" for number in range(3)}
    await until(lambda: names <= set(muster.kubelets.ran), "they run without their gang")
    await only(muster, *names)
    gang = muster.model.application("gang")
    assert gang.summary.state == "Running"
    assert counts(muster, "gang") == {"a": (3, 3, 0), "b": (1, 1, 0)}
    assert [held.placeholder for held in gang.allocations.values()] == [False] * 3


async def test_groups_of_three_sizes_are_where_their_placeholders_were(muster):
    """As YuniKorn's specs multiple_taskgroups_nodes and more_than_min_members."""
    groups = groups_of(("a", 3, {}), ("b", 5, {}), ("c", 2, {}))
    jobs = {"a": 3, "b": 5, "c": 4}
    for group, members in jobs.items():
        for number in range(members):
            await muster.kubectl.pod(driver(f"{group}{number}", "gang", groups, "", group))
    names = {f"{group}{number}" for group, members in jobs.items() for number in range(members)}
    await only(muster, *names)
    await until(lambda: names <= set(muster.kubelets.ran), "all of them run")
    assert counts(muster, "gang") == {"a": (3, 0, 3), "b": (5, 0, 5), "c": (2, 0, 2)}
