"""Limits of users and groups: which of a queue's limits is somebody's."""

import pytest

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
