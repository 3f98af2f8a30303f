"""`muster replay` of traces as they were published, and of gangs whose placeholders time out."""

import json

import pytest

from shared.model.gpus import GPU, GPU_SHARE
from shared.model.resources import MEMORY, VCORE
from tests.unit.cli.test_replay import S, replayed, trace_of, written
from tools.replay.formats import read
from tools.replay.jobs import TraceError

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
2,uVMrF,vchbv,20,16,3,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
3,uzqls,vcpDC,0,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,2020-06-17 14:15:21,675233,0
"""
SEREN = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
5,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0
6,u5907,2,16,128,Pretrain,COMPLETED,2023-02-28 16:19:22+00:00,,,2693,13,21544.0
7,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,,,,32,936.0
"""
PAI = """\
a,ps,1.0,Terminated,100.0,160.0,600.0,29.296875,,
b,tensorflow,2.0,Terminated,130.0,190.0,600.0,29.296875,50.0,MISC
a,worker,3.0,Terminated,105.0,170.0,400.0,1.0,200.0,V100
c,worker,1.0,Failed,,,400.0,1.0,100.0,V100
d,ps,1.0,Terminated,100.0,160.0,600.0,1.0,0.0,
"""


def attempt(start, end, *servers):
    detail = [{"ip": f"m{at}", "gpus": ["gpu"] * gpus} for at, gpus in enumerate(servers)]
    return {"start_time": start, "end_time": end, "detail": detail}


PHILLY = [
    {
        "status": "Pass", "vc": "ee9e8c", "jobid": "application_1", "user": "ce2f4c",
        "submitted_time": "2017-10-07 01:11:39",
        "attempts": [
            attempt("2017-10-07 01:12:00", "2017-10-07 01:13:00", 8),
            attempt("2017-10-07 01:14:00", "2017-10-07 01:14:30", 8, 4),
        ],
    },
    {
        "status": "Killed", "vc": "ee9e8c", "jobid": "application_2", "user": "ce2f4c",
        "submitted_time": "2017-10-07 01:11:49", "attempts": [],
    },
    {
        "status": "Pass", "vc": "ee9e8c", "jobid": "application_3", "user": "ce2f4c",
        "submitted_time": "2017-10-07 01:11:49",
        "attempts": [attempt("2017-10-07 01:12:00", None, 1)],
    },
]  # fmt: skip


def told(trace):
    return [(job.name, job.submitted_ns // S, job.run_ns // S, job.queue, job.user)
            for job in trace.jobs]  # fmt: skip


def test_helios_has_a_queue_for_each_virtual_cluster(tmp_path):
    trace = read(written(tmp_path, HELIOS))
    assert told(trace) == [
        ("job-1", 0, 36848, "vcJkd", "uXBbc"),
        ("job-2", 26, 249, "vchbv", "uVMrF"),
    ]
    assert [(count, pod[GPU]) for count, pod in trace.jobs[1].groups] == [(2, 8), (1, 4)]
    assert trace.left_out == {"asks for no GPU": 1}
    assert (trace.nodes, trace.capacity[GPU]) == (0, 8)


def test_acme_has_a_queue_for_each_type_and_its_times_have_zones(tmp_path):
    trace = read(written(tmp_path, SEREN))
    assert told(trace) == [
        ("job-5", 0, 117, "Other", "u5907"),
        ("job-6", 60, 2693, "Pretrain", "u5907"),
    ]
    assert trace.left_out == {"has no run time": 1}


@pytest.mark.parametrize("heading", ["", "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"])  # fmt: skip
def test_the_tasks_of_pai_are_groups_of_one_gang(tmp_path, heading):
    trace = read(written(tmp_path, heading + PAI))
    assert told(trace) == [("a", 0, 70, "jobs", "user"), ("b", 30, 60, "jobs", "user")]
    (servers, workers), (parts,) = (job.groups for job in trace.jobs)
    assert (servers[0], servers[1][VCORE], servers[1].get(GPU)) == (1, 6000, None)
    assert (workers[0], workers[1][VCORE], workers[1][GPU]) == (3, 4000, 2)
    assert (parts[0], parts[1][GPU_SHARE], parts[1][MEMORY]) == (2, 500, round(29.296875 * 2**30))
    assert trace.left_out == {"asks for no GPU": 1, "has no run time": 1}


def test_a_job_of_philly_runs_for_as_long_as_its_attempts_on_the_most_gpus(tmp_path):
    trace = read(written(tmp_path, json.dumps(PHILLY, indent=1)))
    assert told(trace) == [("application_1", 0, 90, "ee9e8c", "ce2f4c")]
    assert [(count, pod[GPU]) for count, pod in trace.jobs[0].groups] == [(1, 8), (1, 4)]
    assert trace.left_out == {"asks for no GPU": 1, "has no run time": 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{}]", "job 1: jobid, vc, user, submitted_time and attempts were expected"),
        ("[3]", "job 1: jobid, vc"),
        ("[", "Expecting value"),
        ("[]", "it contains no job"),
    ],
)
def test_json_that_does_not_hold_is_said(tmp_path, text, said):
    with pytest.raises(TraceError, match=said):
        read(written(tmp_path, text))


def test_a_published_trace_needs_to_be_told_its_nodes(muster, tmp_path):
    file = str(written(tmp_path, HELIOS))
    assert "give their number or a file with --nodes" in muster("replay", file).err
    found = json.loads(muster("replay", file, "--nodes", "3", "-o", "json").out)
    assert (found["started"], found["capacity"]) == (2, 24)


SWF = "1 0 -1 60 4 -1 -1 8 60 -1 1 1 1 1 1 1 -1 -1\n"


def test_the_processors_of_a_log_are_those_asked_for_or_those_that_jobs_got(muster, tmp_path):
    file = written(tmp_path, SWF)
    for more, size in (((), "8"), (("--processors", "allocated"), "4")):
        result = muster(
            "replay", str(file), "--nodes", "8", "--capacity", "cpu=1", *more, "-o", "json"
        )
        assert list(json.loads(result.out)["bySize"]) == [size]
    other = written(tmp_path, "submit,run,gpus\n0,1,1\n")
    assert (
        "Standard Workload Format" in muster("replay", str(other), "--processors", "allocated").err
    )


# --- placeholders that time out -------------------------------------------------------------------

ADMISSION = {"gangAdmission": "partial"}


def timed_out(style="Soft", seconds=60, **settings):
    """Two gangs of two nodes, which hold a part each beside a job that ends too late for both."""
    trace = trace_of((0, 300, 1, 8), (1, 10, 3, 8), nodes=3)
    return replayed(
        trace, scheduler=settings or ADMISSION, placeholder_timeout_s=seconds, gang_style=style
    )


def test_a_gang_whose_placeholders_time_out_asks_for_its_pods_one_by_one():
    outcome, times = timed_out()
    assert times == [(0, 300), (300, 310)]
    assert outcome.timed_out == 1
    assert outcome.series.used[-1] == 0


def test_a_hard_gang_whose_placeholders_time_out_does_not_run_and_holds_nothing():
    outcome, times = timed_out("Hard")
    assert times == [(0, 300), None]
    assert outcome.runs[1].left_out == "its placeholders timed out, and it is hard"
    assert outcome.series.used[-1] == outcome.series.waiting[-1] == 0


def test_without_a_timeout_a_gang_waits_for_as_long_as_it_takes():
    outcome, times = timed_out(seconds=0)
    assert (times[1], outcome.timed_out) == ((300, 310), 0)


def test_a_setup_says_when_placeholders_time_out(muster, tmp_path):
    trace = written(tmp_path, "submit,run,pods,gpu\n0,300,1,8\n1,10,3,8\n")
    more = "{placeholderTimeout: 60, gangStyle: Hard, "
    shared = "nodes: 3, capacity: nvidia.com/gpu=8, scheduler: {gangAdmission: partial}}\n"
    for name, text in (("never", "{" + shared), ("hard", more + shared), ("odd", "{gangStyle: x}")):
        (tmp_path / f"{name}.yaml").write_text(text)
    files = [str(tmp_path / f"{name}.yaml") for name in ("never", "hard")]
    found = json.loads(muster("replay", str(trace), "--compare", *files, "-o", "json").out)
    assert [each["started"] for each in found["replays"]] == [2, 1]
    odd = muster("replay", str(trace), "--compare", str(tmp_path / "odd.yaml"))
    assert "gangStyle: Soft or Hard was expected, found 'x'" in odd.err
