"""Names of queues that come from people: each is a queue's, or an answer that says why not."""

import pytest

from services.core.scheduler.queues.dynamic_queues import QueueCreationError, get_or_create
from shared.messages.interface import (
    AddApplicationRequest,
    Allocation,
    NodeAction,
    NodeInfo,
    UpdateRequest,
    UserGroupInformation,
)
from shared.messages.protocol import SyncBegin, SyncEnd
from tests.builders import Core, section
from tests.table import each_row

NAMES = (
    "test", "", ".", "..", "root", "root.", ".root", "root..a", "roots.a", "rooted", "a.root.b",
    "root.a b", "root.%", "root.é", "ROOT", "Root.A", "root.@recovery@", "@recovery@", "default",
    "root.default", "root.default.below", "root.a", "root." + "a" * 65, "root" + ".a" * 300,
    "root.a\n", "\x00", "root.root", "_dot_", "*",
)  # fmt: skip
RULES = {
    "provided": "{name: provided, create: %s}",
    "user": "{name: user, create: %s}",
    "tag": "{name: tag, value: namespace, create: %s}",
    "below": "{name: tag, value: namespace, create: %s, parent: {name: provided, create: true}}",
    "fixed": "{name: fixed, value: '*NAME*', create: %s}",
}
CONFIG = (
    "partitions: [{name: default, placementrules: [%s], "
    "queues: [{name: root, submitacl: '*', queues: [{name: default}]}]}]"
)


@each_row("rule", [name for name in RULES if name != "fixed"])
@each_row("create", ["true", "false"])
def test_an_application_of_any_queue_name_is_answered(rule, create):
    """With placement rules that take the name from the pod, its user or a tag."""
    core = Core(CONFIG % (RULES[rule] % create))
    for number, name in enumerate(NAMES):
        for force in ("", "true"):
            app = f"app-{number}-{force}"
            said = core.application(
                app,
                name,
                ugi=UserGroupInformation(name if rule == "user" else "ann"),
                tags={"namespace": name, "application.create.force": force},
            )
            accepted = section(said, "accepted_applications")
            rejected = section(said, "rejected_applications")
            assert [item.application_id for item in (*accepted, *rejected)] == [app]
            assert all(item.reason for item in rejected)
    assert all(path == path.lower() for path in core.partition.queues)
    core.check()


MADE = ("Root.A", "root.default", "root.root", "root.a", "root.@recovery@", "root", "ROOT")


@each_row("name", [name for name in NAMES if name not in MADE])
def test_a_queue_of_a_bad_name_is_refused(name):
    core = Core()
    before = dict(core.partition.queues)
    with pytest.raises(QueueCreationError, match=r"\w"):
        get_or_create(core.partition, name)
    assert core.partition.queues == before


@each_row("name", MADE)
def test_a_queue_of_a_good_name_is_made_in_lower_case(name):
    core = Core()
    queue = get_or_create(core.partition, name)
    assert queue.path == name.lower()
    assert core.partition.queues[queue.path] is queue


@pytest.mark.parametrize("name", ["test", "", "rooted.a", ".root"])
def test_a_name_that_does_not_start_at_the_root_is_refused(name):
    with pytest.raises(
        QueueCreationError, match=r"illegal queue name passed in|invalid queue name"
    ):
        get_or_create(Core().partition, name)


def test_what_runs_is_taken_in_when_no_configuration_has_ever_held():
    """It goes to the recovery queue below the root, which is there in any case."""
    core = Core()
    core.epoch += 1
    core.send(SyncBegin("partitions: [{name: default, queues: 5}]"))
    forced = {"application.create.force": "true"}
    request = AddApplicationRequest("app", "root.default", tags=forced)
    node = NodeInfo("n", NodeAction.CREATE, {"vcore": 9000, "pods": 9})
    core.send(UpdateRequest("rm", nodes=(node,), new_applications=(request,)))
    held = Allocation("pod", "app", "n", {"vcore": 1000, "pods": 1})
    core.send(UpdateRequest("rm", allocations=(held,)))
    core.send(SyncEnd(1, 1, 0))
    assert core.partition.queues["root.@recovery@"].allocated == {"vcore": 1000, "pods": 1}
    core.check()
