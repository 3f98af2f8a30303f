"""Limits of users and groups: which of a queue's limits is somebody's."""

import pytest

from services.core.scheduler.model.user_ledger import UserLedger
from shared.messages.interface import UserGroupInformation
from tests.builders import Core, config_of

NAMED = "{users: [alice], maxresources: {vcore: %dm}}"
WILDCARD = "{users: ['*'], maxresources: {vcore: %dm}}"


@pytest.mark.parametrize("named", [1000, 3000])
def test_the_limit_that_names_a_user_holds_and_not_the_wildcards(named):
    limits = f"{NAMED % named}, {WILDCARD % 2000}"
    core = Core(config_of("{name: a, limits: [%s]}" % limits))
    core.node("n", vcore=9000)
    for user in ("alice", "bob"):
        core.application(user, "root.a", ugi=UserGroupInformation(user))
        core.asks(user, [f"{user}-{at}" for at in range(4)], {"vcore": 1000})
    placed = {user: len(core.partition.applications[user].allocations) for user in ("alice", "bob")}
    assert placed == {"alice": named // 1000, "bob": 2}
    core.check()


def test_room_that_is_kept_twice_is_still_kept_when_one_gives_it_back():
    core = Core(config_of("{name: a, limits: [{users: [alice], maxresources: {vcore: 10m}}]}"))
    leaf = core.partition.queues["root.a"]
    alice = UserLedger("alice", is_group=False)
    alice.keep(leaf, {"vcore": 3})
    alice.keep(leaf, {"vcore": 4})
    assert alice.room_for(leaf, {"vcore": 1}) == 3
    alice.keep_no_more(leaf, {"vcore": 3})
    assert alice.room_for(leaf, {"vcore": 1}) == 6
    alice.keep_no_more(leaf, {"vcore": 4})
    assert alice.room_for(leaf, {"vcore": 1}) == 10
    assert alice.kept == {}
