"""Node scores by name: who may use them, what the mix is, and which device a share goes to."""

import numpy as np
import pytest

from services.cli.config_check import check_files
from services.core.scheduler.model.settings import settings_from
from services.core.scheduler.model.shapes import Shape
from shared.messages.constraints import NO_CONSTRAINTS
from shared.messages.interface import (
    AllocationRelease,
    TerminationType,
    UpdateConfiguration,
    UpdateRequest,
)
from shared.model.gpus import GPU, GPU_SHARE
from tests.builders import Core, config_of, section
from tests.table import each_row

CONFIG = """
partitions:
  - name: default
    nodesortpolicy:
      type: {}
    queues:
      - name: root
        submitacl: "*"
        queues: [{{name: default}}]
"""
SCORES = ["gpu-binpacking", "fgd"]
_NAMES = {"gpu": GPU, "share": GPU_SHARE}


def cluster(policy, *gpus, settings=(), cores=()):
    core = Core(CONFIG.format(policy), settings=settings)
    for at, number in enumerate(gpus):
        vcore = cores[at] if cores else 100
        core.node(f"n{at}", vcore=vcore, memory=1000, **({GPU: number} if number else {}))
    core.application("app")
    return core


def ask(core, key, **resource):
    named = {_NAMES.get(name, name): value for name, value in resource.items()}
    found = section(core.asks("app", [key], named), "new_allocations")
    return [(item.node_id, item.devices) for item in found]


def _released(*keys):
    stopped = TerminationType.STOPPED_BY_RM
    return UpdateRequest("rm", releases=tuple(AllocationRelease("app", k, stopped) for k in keys))


# --- who may use them -----------------------------------------------------------------------------


@pytest.mark.parametrize("score", SCORES)
def test_a_file_may_name_them_and_the_check_says_that_yunikorn_refuses_it(score, tmp_path, capsys):
    file = tmp_path / "queues.yaml"
    file.write_text(CONFIG.format(score))
    assert check_files([file]) == 0
    assert capsys.readouterr().err == (
        f"{file}:5: warning: nodesortpolicy {score} is not YuniKorn's: it refuses this file "
        f"(undefined policy: {score})\n"
    )
    file.write_text(CONFIG.format("fair"))
    assert check_files([file]) == 0
    assert capsys.readouterr().err == ""


@each_row(
    "settings",
    [(), (("preset", "yunikorn"),), (("preset", "muster"),), (("nodeScores", "disabled"),)],
)
@each_row("score", SCORES)
def test_they_hold_under_any_settings(score, settings):
    core = Core(CONFIG.format("fair"), settings=settings)
    core.send(UpdateConfiguration(CONFIG.format(score)))
    assert not core.partition.config_error
    assert core.partition.nodes.order.policy == score


def test_an_unknown_policy_is_refused():
    core = Core(CONFIG.format("fair"))
    core.send(UpdateConfiguration(CONFIG.format("fullest")))
    assert core.partition.config_error == "line 5: undefined policy: fullest"


@each_row("window", ["0", "10001", "-1", "1e3", "9" * 5_000, "x"])
def test_a_window_out_of_bounds_is_refused_with_its_bounds(window):
    found = settings_from([("nodeScoreWindow", window)])
    assert found.node_score_window == 1_000
    assert "nodeScoreWindow: a number of asks from 1 to 10000" in found.refused[0]
    assert settings_from([("nodeScoreWindow", "10000")]).node_score_window == 10_000


# --- what they choose -----------------------------------------------------------------------------


def test_gpu_binpacking_fills_the_node_with_the_fewest_free_gpus_whatever_else_is_free():
    core = cluster("gpu-binpacking", 4, 2, 2, cores=(100, 10, 90))
    assert ask(core, "a", vcore=80, gpu=1) == [("n0", ((0, 1000),))]
    assert ask(core, "b", vcore=1, gpu=1) == [("n0", ((1, 1000),))]
    assert ask(core, "c", vcore=1, share=300) == [("n0", ((2, 300),))]
    assert ask(core, "d", vcore=1, share=700) == [("n0", ((2, 700),))]
    assert ask(core, "e", vcore=1, share=400) == [("n0", ((3, 400),))]
    core.check()


def test_fgd_keeps_whole_devices_for_those_who_ask_for_whole_ones():
    core = cluster("fgd", 2)
    ask(core, "a", vcore=1, share=500)
    assert ask(core, "b", vcore=1, gpu=1) == [("n0", ((1, 1000),))]
    assert ask(core, "c", vcore=1, share=500) == [("n0", ((0, 500),))]
    core.check()


def test_fgd_sends_who_needs_no_gpu_where_none_is_stranded():
    core = cluster("fgd", 4, 0, cores=(40, 40))
    for at in range(4):
        ask(core, f"a{at}", vcore=10, gpu=1)  # the mix: ten cores a GPU
    core.send(_released("a0", "a1", "a2", "a3"))
    assert ask(core, "b", vcore=10) == [("n1", ())]
    core.check()


def test_equal_scores_are_taken_by_node_id():
    core = cluster("fgd", 2, 2, 2)
    assert ask(core, "a", vcore=1, gpu=2)[0][0] == "n0"
    assert ask(core, "b", vcore=1, gpu=2)[0][0] == "n1"
    core.check()


def test_kais_packing_scores_one_node_as_it_scores_many():
    core = Core(config_of("{name: a}"), settings=(("policy", "kai"),))
    for at, (vcore, gpus) in enumerate([(8, 0), (4, 2), (6, 4), (2, 1)]):
        core.node(f"n{at}", **{"vcore": vcore, GPU: gpus})
    score = core.partition.nodes.order.score
    rows = np.arange(4)
    core.application("app", "root.a")
    for number, resource in enumerate(
        ({"vcore": 1}, {"vcore": 1, GPU: 1}, {"vcore": 1, GPU_SHARE: 300}, {"vcore": 1, GPU: 1})
    ):
        core.asks("app", [f"p{number}"], resource)
        shape = Shape("", resource, NO_CONSTRAINTS)
        nodes = core.partition.nodes.rows
        assert score.of_rows(rows, shape).tolist() == [score.of_node(n, shape) for n in nodes]
    held = {
        key: each.node_id for key, each in core.partition.applications["app"].allocations.items()
    }
    assert held == {"p0": "n0", "p1": "n3", "p2": "n1", "p3": "n1"}
