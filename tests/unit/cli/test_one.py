"""`muster node`, `queue`, `user`, `topology` on what a core and its API really answer."""

import asyncio
import json
import re

import pytest

from services.cli.exits import Exit
from services.cli.render import in_words
from shared.messages.interface import (
    AllocationAsk,
    NodeAction,
    NodeInfo,
    UserGroupInformation,
)
from shared.model.scheduler_settings import TOPOLOGY_LEVELS
from shared.model.units import seconds
from tests.table import each_row
from tests.unit.api.following import System

GPU = "nvidia.com/gpu"
GI = 2**30
CONFIG = """
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    queues:
    - name: ml
      resources: {guaranteed: {vcore: 2}, max: {vcore: 6, memory: 24Gi}}
      maxapplications: 3
      limits: [{limit: ada, users: [ada], maxresources: {vcore: 4}}]
    - name: batch
"""


@pytest.fixture
def system():
    """Return a core with two racks; ada trains in root.ml, and one pod of hers waits."""
    return cluster()


def cluster(*settings):
    system = System(CONFIG, settings=((TOPOLOGY_LEVELS, "zone=z,rack=r"), *settings))
    capacity = {"vcore": 4_000, "memory": 16 * GI, "pods": 110, GPU: 2}
    for name, rack in (("n1", "r1"), ("n2", "r2")):
        labels = {"z": "east", "r": rack}
        system.update(nodes=(NodeInfo(name, NodeAction.CREATE, capacity, labels=labels),))
    system.application("train", "root.ml", ugi=UserGroupInformation("ada", ("research",)))
    need = {"vcore": 2_500, "memory": 4 * GI, "pods": 1, GPU: 1}
    system.update(asks=tuple(AllocationAsk(f"train-{at}", "train", need) for at in range(2)))
    return system


@pytest.fixture
def counting(api, muster):
    """Return what types a command line at the API of a core that counts usage over time."""
    system = cluster(("usageHalfLife", "24h"))
    system.now_ns += seconds(3_600)
    system.update()
    return typing_at(system, api, muster)


@pytest.fixture
def typed(system, api, muster):
    """Return what types a command line at the API of that core."""
    return typing_at(system, api, muster)


def typing_at(system, api, muster):
    def run(*arguments, asks):
        for path in asks:
            found = asyncio.run(system.get(path))
            what = f"GET {path.partition('?')[0]}"
            api.says(what, found.json(), found.status_code)
        return muster(*arguments)

    return run


def facts(out):
    """Return the lines before the first table: what stands at a name's side."""
    head = out.split("\n\n")[0]
    return {line[:12].strip(): line[13:] for line in head.splitlines()}


NODE = "/ws/v1/partition/default/node/n1"
PODS = "/v1/pods?node=n1&partition=default"


def test_a_node_is_shown_with_who_is_on_it(typed):
    result = typed("node", "n1", asks=[NODE, PODS])
    assert result.status == 0, result.err
    said = facts(result.out)
    assert said["state"] == "Ready"
    assert said["capacity"] == "4 vcore, 16 GiB memory, 2 GPUs, 110 pods"
    assert said["allocated"] == "2.5 vcore, 4 GiB memory, 1 GPU, 1 pod"
    assert said["available"] == "1.5 vcore, 12 GiB memory, 1 GPU, 109 pods"
    assert said["pods"] == "1"
    assert re.search(r"train-0 +train +Allocated", result.out)
    assert names_of(typed("node", "n1", "-o", "name", asks=[NODE, PODS])) == ["train-0"]
    assert (
        json.loads(typed("node", "n1", "-o", "json", asks=[]).out)["pods"][0]["name"] == "train-0"
    )


def test_a_queue_is_shown_with_its_limits_who_waits_in_it_and_why(typed):
    asks = ["/v1/queues", "/v1/applications"]
    result = typed("queue", "root.ml", asks=asks)
    said = facts(result.out)
    assert said["guaranteed"] == "2 vcore"
    assert said["max"] == "6 vcore, 24 GiB memory"
    assert said["used"] == "2.5 vcore, 4 GiB memory, 1 GPU, 1 pod"
    assert said["pending"] == "2.5 vcore, 4 GiB memory, 1 GPU, 1 pod"
    assert said["applications"] == "1 running of at most 3"
    assert re.match(
        r"1 pod: USER_QUOTA: .*user ada.* 1\.5 vcore left of its 4", said["held back by"]
    )
    assert re.search(r"train +root\.ml +Running", result.out)
    assert typed("queue", "ml", asks=asks).out == result.out


def test_a_queue_shows_those_below_it_and_all_that_is_in_them(typed):
    out = typed("queue", "root", asks=["/v1/queues", "/v1/applications"]).out
    assert re.search(r"root\.batch +- +-", out)
    assert re.search(r"root\.ml +vcore 2\.5", out)
    assert re.search(r"train +root\.ml", out)


def test_an_empty_queue_says_that_nothing_is_in_it(typed):
    result = typed("queue", "batch", asks=["/v1/queues", "/v1/applications"])
    assert result.out.endswith("\n\nno applications")
    assert "held back" not in result.out


def test_a_user_is_shown_by_what_they_use_where_and_what_waits(typed):
    asks = [
        "/ws/v1/partition/default/usage/user/ada",
        "/v1/applications",
        "/v1/usage?user=ada&partition=default",
    ]
    result = typed("user", "ada", asks=asks)
    assert facts(result.out)["user"] == "ada"
    assert re.search(r"root\.ml +vcore 2\.5, memory 4Gi.* vcore 4", result.out)
    assert re.search(r"train +root\.ml +Running .*USER_QUOTA: ", result.out)
    assert names_of(typed("user", "ada", "-o", "name", asks=asks)) == ["train"]


def test_usage_over_time_is_shown_beside_what_is_used_now(counting):
    usage = "/v1/usage?queue=root.ml&partition=default"
    said = facts(counting("queue", "ml", asks=["/v1/queues", "/v1/applications", usage]).out)
    assert re.fullmatch(r"31\.2 % of vcore, 12\.5 % of memory, 25 % of GPUs, .*", said["share now"])
    assert re.fullmatch(
        r"31\.\d % of vcore, 12\.\d % of memory, 25 % of GPUs, .*  \(half-life 24h\)",
        said["over time"],
    )
    asks = ["/ws/v1/partition/default/usage/user/ada", "/v1/applications", "/v1/usage?user=ada"]
    out = counting("user", "ada", asks=asks).out
    assert re.search(r"IN QUEUE +SHARE NOW +SHARE OVER TIME\n", out)
    assert re.search(r"\nroot\.ml +31\.2 % of vcore", out)
    assert "\nusage        counted over time  (half-life 24h)\n" in out


def test_the_topology_is_a_tree_of_domains_with_what_is_used_and_free(typed):
    result = typed("topology", asks=["/v1/topology"])
    rows = [re.split(r"\s{2,}", line.strip()) for line in result.out.splitlines()]
    assert [row[:6] for row in rows] == [
        ["DOMAIN", "LEVEL", "NODES", "GPUS", "USED", "FREE"],
        ["east", "zone", "2", "4", "1", "3"],
        ["r1", "rack", "1", "2", "1", "1"],
        ["r2", "rack", "1", "2", "0", "2"],
    ]


@each_row(
    ("arguments", "asks", "sentence"),
    [
        (
            ("node", "n9"),
            [NODE.replace("n1", "n9")],
            "no node is called n9; `muster nodes` shows all",
        ),
        (("queue", "root.no"), ["/v1/queues"], "no queue is called root.no; `muster queues` shows"),
        (
            ("user", "eve"),
            ["/ws/v1/partition/default/usage/user/eve"],
            "no user is called eve; `muster top users` shows all",
        ),
    ],
)
def test_what_is_not_there_is_one_sentence(typed, arguments, asks, sentence):
    result = typed(*arguments, asks=asks)
    assert (result.status, result.out) == (Exit.REFUSED, "")
    assert sentence in result.err
    assert result.err.count("\n") == 1


@each_row(
    ("amounts", "text"),
    [
        ({}, ""),
        ({"vcore": 0}, "0 vcore"),
        ({"pods": 1, "memory": 3 * GI, "vcore": 1_500}, "1.5 vcore, 3 GiB memory, 1 pod"),
        ({"pods": 2, GPU: 1, "ephemeral-storage": 2**40}, "1 TiB ephemeral-storage, 1 GPU, 2 pods"),
    ],
)
def test_amounts_are_in_units_of_people_in_sentences(amounts, text):
    assert in_words(amounts) == text


def names_of(result):
    return result.out.splitlines()
