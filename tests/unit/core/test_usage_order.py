"""Usage over time as an order of queues and applications, by messages."""

from services.core.scheduler.report.views import partition_state
from shared.messages.interface import (
    AddApplicationRequest,
    AllocationAsk,
    AllocationRelease,
    RemoveApplicationRequest,
    TerminationType,
    UserGroupInformation,
)
from shared.model.units import seconds
from tests.builders import Core, config_of
from tests.table import each_row

HOUR = seconds(3_600)
ONE = {"vcore": 1}
HALF_LIFE = (("usageHalfLife", "24h"),)
BY_USAGE = "properties: {application.sort.policy: usage}"


def core_with(*leaves: str, settings=HALF_LIFE, vcore: int = 4, root: str = BY_USAGE) -> Core:
    config = config_of(*leaves).replace("submitacl: '*'", f"submitacl: '*', {root}")
    core = Core(config, settings=settings)
    core.node("n", vcore=vcore)
    return core


def submit(core: Core, *applications: tuple[str, str, str], priority: int = 0) -> None:
    """Submit applications of one pod each, at once: name, leaf, user."""
    core.update(
        new_applications=tuple(
            AddApplicationRequest(name, f"root.{leaf}", ugi=UserGroupInformation(user))
            for name, leaf, user in applications
        ),
        asks=tuple(
            AllocationAsk(f"{name}-0", name, ONE, priority=priority) for name, _, _ in applications
        ),
    )


def use(core: Core, leaf: str, pods: int, hours: float, user: str = "nobody") -> None:
    """Let a user run some pods in a leaf for a time, and no longer."""
    names = [f"before-{leaf}-{user}-{core.now_ns}-{at}" for at in range(pods)]
    submit(core, *((name, leaf, user) for name in names))
    assert running(core) == names
    core.now_ns += int(hours * HOUR)
    end(core, *names)


def end(core: Core, *names: str) -> None:
    why = TerminationType.STOPPED_BY_RM
    core.update(releases=tuple(AllocationRelease(name, f"{name}-0", why) for name in names))


def running(core: Core) -> list[str]:
    """Return the applications that have their pod, in the order in which they came."""
    return [name for name, each in core.partition.applications.items() if each.allocations]


def waiting_of(*leaves: str, each: int = 4) -> list[tuple[str, str, str]]:
    return [(f"{leaf}{at}", leaf, "nobody") for leaf in leaves for at in range(each)]


@each_row(
    ("one", "two", "expected"),
    [
        ((2, ""), (1, ""), {"b": 4}),
        ((1, ""), (2, ""), {"a": 4}),
        ((2, "overquota.weight: '3'"), (1, ""), {"a": 4}),
        ((2, "overquota.weight: '1.5'"), (1, ""), {"b": 4}),
        ((2, "overquota.weight.vcore: '3'"), (1, ""), {"a": 4}),
        ((0, "overquota.weight: '0'"), (1, ""), {"b": 4}),
        ((0, ""), (0, ""), {"a": 2, "b": 2}),
    ],
)
def test_the_queue_that_has_used_least_by_its_weight_goes_first(one, two, expected):
    leaf = "{name: %s, properties: {%s}}"
    core = core_with(leaf % ("a", one[1]), leaf % ("b", two[1]))
    for name, (hours, _) in (("a", one), ("b", two)):
        if hours:
            use(core, name, 4, hours)
    submit(core, *waiting_of("a", "b"))
    found = running(core)
    counts = {leaf: sum(name[0] == leaf for name in found) for leaf in "ab"}
    assert {leaf: count for leaf, count in counts.items() if count} == expected
    core.check()


@each_row(
    ("settings", "root", "expected"),
    [
        (HALF_LIFE, BY_USAGE, ["b0", "b1", "b2", "b3"]),
        (HALF_LIFE, "properties: {}", ["a0", "a1", "b0", "b1"]),
        ((), BY_USAGE, ["a0", "a1", "b0", "b1"]),
        ((("usageWindow", "87600h"),), BY_USAGE, ["b0", "b1", "b2", "b3"]),
    ],
)
def test_it_is_an_order_only_where_a_queue_and_the_settings_say_so(settings, root, expected):
    core = core_with("{name: a}", "{name: b}", settings=settings, root=root)
    use(core, "a", 4, 2)
    submit(core, *waiting_of("a", "b"))
    assert running(core) == expected


def test_a_queue_that_goes_by_usage_where_none_is_counted_is_warned_of():
    for settings, count in ((HALF_LIFE, 0), ((), 1)):
        core = core_with("{name: a}", settings=settings)
        found = partition_state(core.partition).config_warnings
        assert len([each for each in found if "usage of queue root has no effect" in each]) == count


def test_a_dynamic_queue_that_goes_and_comes_again_has_its_usage():
    rule = "placementrules: [{name: tag, value: namespace, create: true}], queues"
    config = config_of().replace("queues", rule, 1)
    core = Core(config, settings=HALF_LIFE)
    core.node("n", vcore=2)
    for name in ("one", "two"):
        core.application(name, "", tags={"namespace": "ns"})
        core.asks(name, [f"{name}-0"], ONE)
        assert core.partition.applications[name].queue.path == "root.ns"
        clock, queue = core.partition.usage, core.partition.queues["root.ns"]
        queue.advance_usage()
        clock.advance_capacity()
        assert (clock.share_ppb(queue.used, "vcore") > 400_000_000) is (name == "two")
        core.now_ns += HOUR
        end(core, name)
        core.update(remove_applications=(RemoveApplicationRequest(name),))
        core.now_ns += seconds(60)
        core.fire_own("cleaner")
        assert "root.ns" not in core.partition.queues


def test_who_used_less_goes_first_until_both_have_used_the_same():
    core = core_with("{name: a}", "{name: b}", vcore=1)
    use(core, "a", 1, 1)
    submit(core, *waiting_of("a", "b", each=40))
    order = ""
    for _ in range(12):
        (name,) = running(core)
        order += name[0]
        core.now_ns += HOUR // 4
        end(core, name)
    # A quarter of an hour counts a little more the later it is: after four of b's, a has less.
    assert order == "bbbbabababab"


def test_a_higher_priority_goes_before_it_unless_that_is_disabled():
    for more, expected in (("", "a"), (", application.sort.priority: disabled", "b")):
        root = BY_USAGE.replace("usage", f"usage{more}")
        core = core_with("{name: a}", "{name: b}", root=root)
        use(core, "a", 4, 2)
        submit(core, *((f"x{at}", "b", "nobody") for at in range(4)))
        submit(core, *waiting_of("b"))
        submit(core, *((f"a{at}", "a", "nobody") for at in range(4)), priority=9)
        end(core, *running(core))
        assert {name[0] for name in running(core)} == {expected}


# --- applications of one leaf -------------------------------------------------------------------


def test_in_a_leaf_the_user_who_has_used_least_goes_first():
    core = core_with("{name: a}", vcore=2)
    use(core, "a", 2, 2, "ann")
    use(core, "a", 2, 1, "bob")
    users = ("ann", "ann", "bob", "bob", "cid")
    submit(core, *((f"{user}{at}", "a", user) for at, user in enumerate(users)))
    assert running(core) == ["bob2", "cid4"]
    core.now_ns += HOUR // 2
    end(core, *running(core))
    assert running(core) == ["ann0", "bob3"]


def test_of_users_who_have_used_the_same_none_waits_behind_all_of_another():
    core = core_with("{name: a}", vcore=2)
    use(core, "a", 2, 1, "eve")
    submit(core, ("eve0", "a", "eve"), ("eve1", "a", "eve"))
    users = ("ann", "ann", "ann", "bob", "bob", "cid")
    submit(core, *((f"{user}{at}", "a", user) for at, user in enumerate(users)))
    core.now_ns += HOUR
    end(core, "eve0", "eve1")
    assert running(core) == ["ann0", "bob3"]


def test_usage_in_another_queue_does_not_count_in_this_one():
    core = core_with("{name: a}", "{name: b}", vcore=1)
    use(core, "b", 1, 5, "ann")
    use(core, "a", 1, 1, "bob")
    submit(core, ("bob0", "a", "bob"), ("ann0", "a", "ann"))
    assert running(core) == ["ann0"]


def test_gangs_go_by_it_as_well_and_each_is_whole():
    settings = (*HALF_LIFE, ("gangAdmission", "cluster"))
    core = core_with("{name: a}", vcore=4, settings=settings)
    use(core, "a", 4, 1, "ann")
    submit(core, *((f"e{at}", "a", "eve") for at in range(2)))
    for user in ("ann", "bob"):
        core.gang(user, 3, ONE, queue="root.a", ugi=UserGroupInformation(user))
    core.now_ns += seconds(60)
    end(core, "e0", "e1")
    held = {user: len(core.partition.applications[user].allocations) for user in ("ann", "bob")}
    assert held == {"ann": 0, "bob": 3}
    core.check()
