"""`muster replay`: what each format means, what becomes of jobs by hand, and what is said of them."""

import gzip
import json
import tracemalloc
from pathlib import Path

import pytest

from services.cli.exits import Exit
from services.cli.simulated_nodes import RACK_LABEL
from services.core.configuration import parse_configuration
from services.core.scheduler.scheduler import Scheduler
from shared.messages.interface import TopologyConstraint
from shared.messages.state import StateDelta
from shared.model.gpus import GPU
from shared.model.units import NANOS_PER_SECOND
from tests.table import each_row
from tests.unit.cli.queues import EVICTING
from tools.replay.comparison import compared
from tools.replay.figures import figures_of
from tools.replay.formats import read
from tools.replay.jobs import Job, Trace, TraceError, in_order
from tools.replay.run import RM_ID, Replay
from tools.replay.setup import read_setup, setup_of

S = NANOS_PER_SECOND


def trace_of(*jobs: tuple, nodes: int = 1) -> Trace:
    """Return a trace of (submit, run, pods, gpus a pod[, queue]) in seconds, on nodes of 8 GPUs."""
    made = [
        Job(f"j{at}", submit * S, run * S, (more or ["a"])[0], "user", ((pods, {GPU: gpus}),))
        for at, (submit, run, pods, gpus, *more) in enumerate(jobs)
    ]
    return Trace("by hand", in_order(made), GPU, nodes, {GPU: 8, "pods": 110})


def replayed(trace: Trace, **more):
    outcome = Replay(trace, setup_of(trace, "setup", **more)).run()
    return outcome, [
        (run.started_ns // S, run.ended_ns // S) if run.started_ns >= 0 else None
        for run in outcome.runs
    ]


# --- what becomes of jobs -----------------------------------------------------------------------


def test_a_job_starts_when_there_is_room_and_ends_after_its_run_time():
    assert replayed(trace_of((0, 10, 1, 8), (3, 5, 1, 8)))[1] == [(0, 10), (10, 15)]


def test_a_gang_starts_when_the_last_of_its_pods_has_a_place():
    trace = trace_of((0, 10, 1, 8), (1, 20, 1, 8), (2, 5, 2, 8), nodes=2)
    assert replayed(trace)[1] == [(0, 10), (1, 21), (21, 26)]


def test_what_a_gang_holds_while_it_waits_is_in_use_and_is_free_again_at_its_end():
    trace = trace_of((0, 10, 1, 8), (1, 5, 2, 8), (30, 1, 1, 8), nodes=2)
    series = replayed(trace)[0].series
    assert list(zip([at // S for at in series.at_ns], series.used, series.waiting, strict=True)) == [
        (0, 8, 0), (1, 16, 1), (10, 16, 0), (15, 0, 0), (30, 8, 0), (31, 0, 0),
    ]  # fmt: skip


def test_free_gpus_of_nodes_partly_in_use_are_counted_as_fragments():
    series = replayed(trace_of((0, 10, 1, 3), (2, 10, 1, 8), nodes=3))[0].series
    assert list(series.broken) == [5, 5, 0, 0]


def test_a_job_that_is_evicted_begins_again_and_waits_for_all_that_it_did_not_run():
    trace = trace_of((0, 10_000, 1, 8, "a"), (0, 10_000, 1, 8, "a"), (50, 10, 1, 8, "b"), nodes=2)
    outcome, times = replayed(trace, queues=EVICTING)
    assert outcome.evictions == 1
    assert [start for start, _ in times[:2]] == [0, 0]
    (start, end) = times[2]
    assert end == start + 10 < 200
    assert sorted(ended for _, ended in times[:2]) == [10_000, end + 10_000]
    assert outcome.series.used[-1] == outcome.series.waiting[-1] == 0
    evicted = max(outcome.runs, key=lambda run: run.began)
    assert (evicted.wait_ns, evicted.lost_ns) == (end * S, start * S)
    assert figures_of(outcome, 0.0)["lostPercent"] == round(100 * start / (20_010 + start), 2)


def test_with_a_preemption_cost_it_goes_on_from_where_it_was_and_starting_over_costs_so_much():
    trace = trace_of((0, 10_000, 1, 8, "a"), (0, 10_000, 1, 8, "a"), (50, 10, 1, 8, "b"), nodes=2)
    outcome, times = replayed(trace, queues=EVICTING, preemption_cost_s=60)
    assert outcome.evictions == 1
    evicted = max(outcome.runs, key=lambda run: run.began)
    assert sorted(ended for _, ended in times[:2]) == [10_000, 10_000 + 10 + 60]
    assert (evicted.wait_ns, evicted.lost_ns) == (70 * S, 60 * S)
    assert figures_of(outcome, 0.0)["lostPercent"] == round(100 * 60 / (20_010 + 60), 2)


def test_a_setup_says_what_a_preemption_costs(tmp_path):
    trace, file = trace_of((0, 1, 1, 8)), tmp_path / "setup.yaml"
    for text, cost in (
        ("preemptionCost: 60", 60),
        ("preemptionCost: -1", None),
        ("nodes: 1", None),
    ):
        file.write_text(text)
        assert read_setup(trace, file, "x").preemption_cost_s == cost
    for text in ("soon", "-2", "3601"):
        file.write_text(f"preemptionCost: {text}")
        with pytest.raises(
            TraceError, match="a number of seconds, -1: all that it ran was expected"
        ):
            read_setup(trace, file, "x")


def test_gangs_ask_for_a_rack_that_could_hold_them():
    """Of two racks of one node each half is in use: the gang is in both, or waits."""
    trace = trace_of((0, 50, 1, 5), (0, 100, 1, 5), (2, 10, 2, 3), nodes=2)
    anywhere, times = replayed(trace, racks=2)
    found = figures_of(anywhere, 0.0)
    assert (found["gangsOfOneRack"], found["overSeveralRacks"], times[2]) == (1, 1, (2, 12))
    near, times = replayed(trace, racks=2, topology=TopologyConstraint(required="rack"))
    found = figures_of(near, 0.0)
    assert (found["gangsOfOneRack"], found["overSeveralRacks"], times[2]) == (1, 0, (50, 60))


def test_a_gang_larger_than_a_rack_asks_for_none():
    trace = trace_of((0, 10, 3, 8), nodes=4)
    outcome, times = replayed(trace, racks=2, topology=TopologyConstraint(required="rack"))
    assert (times, figures_of(outcome, 0.0)["gangsOfOneRack"]) == ([(0, 10)], 0)


def test_a_gang_with_a_minimum_starts_with_it_and_takes_longer_until_all_have_joined():
    trace = trace_of((0, 20, 1, 8), (1, 100, 2, 8), nodes=2)
    assert replayed(trace)[1] == [(0, 20), (20, 120)]
    assert replayed(trace, minimum_percent=50)[1] == [(0, 20), (1, 110)]  # 19 s of it with one pod


def test_a_setup_says_how_many_racks_there_are_and_what_gangs_ask_for(tmp_path):
    trace, file = trace_of((0, 1, 1, 8), nodes=4), tmp_path / "setup.yaml"
    file.write_text("{racks: 2, topology: {preferred: rack}, gangMinimum: 50}")
    setup = read_setup(trace, file, "x")
    assert (setup.racks, setup.topology.preferred, setup.minimum_percent) == (2, "rack", 50)
    assert [node.labels[RACK_LABEL] for node in setup.nodes] == ["rack-0"] * 2 + ["rack-1"] * 2
    for text, why in (
        ("racks: many", "a number of racks was expected"),
        ("racks: 5", "racks 5: there are only 4"),
        ("topology: {near: rack}", "there is no 'near'"),
        ("gangMinimum: 0", "a percentage from 1 to 100 was expected"),
        ("{gangMinimum: 50, preemptionCost: 60}", "-1 with a gangMinimum was expected"),
    ):
        file.write_text(text)
        with pytest.raises(TraceError, match=why):
            read_setup(trace, file, "x")


LEVELS = """
partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [
  {name: a, properties: {attained.service.levels: 1h}}]}]}]
"""


def test_the_service_of_a_job_outlives_its_evictions():
    """What has had its hour is not tried before what has had less, though it comes again."""
    jobs = ((0, 2_000, 1, 8), (1_000, 300, 1, 8), (1_100, 300, 1, 8))
    outcome, times = replayed(
        trace_of(*jobs), queues=LEVELS, scheduler={"policy": "kai"}, preemption_cost_s=60
    )
    assert outcome.evictions == 1
    (_, last), (second, ended), (third, _) = times
    assert 1_000 <= second < 1_200
    assert third == ended
    assert last == 2_000 + 300 + 300 + 60


def test_a_job_that_no_node_can_hold_never_starts_and_one_that_is_refused_says_why():
    outcome, times = replayed(trace_of((0, 1, 1, 9), (1, 1, 1, 8), (2, 1, 1, 1, "b")),
                              queues="""
partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: a}]}]}]
""")  # fmt: skip
    found = figures_of(outcome, 0.0)
    assert (times[0], times[1]) == (None, (1, 2))
    assert (found["neverStarted"], found["refused"]) == (1, 1)
    assert found["neverStartedFor"] == (
        "application j0 waits: one of its pods needs 9 GPUs, and the nodes together have "
        "8 GPUs left of 8 GPUs."
    )
    assert "no placement rule matched" in found["refusedFor"]


def test_the_same_trace_gives_the_same_schedule():
    jobs = [(at % 7, 1 + at % 5, 1 + at % 3, 1 + at % 8) for at in range(60)]
    assert replayed(trace_of(*jobs, nodes=4))[1] == replayed(trace_of(*jobs, nodes=4))[1]


def test_what_nobody_reads_is_not_published_and_the_schedule_is_the_same():
    jobs = [(at % 7, 1 + at % 5, 1 + at % 3, 1 + at % 8) for at in range(60)]
    trace = trace_of(*jobs, nodes=4)
    setup = setup_of(trace, "setup", scheduler={"preset": "muster"})
    published = []
    times = []
    for has_readers in (True, False):
        replay = Replay(trace, setup)
        replay.scheduler = scheduler = Scheduler(
            RM_ID, parse_configuration, has_readers=has_readers
        )
        flush = scheduler.flush
        told = []

        def heard(now_ns, flush=flush, told=told):
            answers = flush(now_ns)
            told += [type(answer.message) for answer in answers]
            return answers

        scheduler.flush = heard
        times.append([(run.started_ns, run.ended_ns) for run in replay.run().runs])
        published.append(told.count(StateDelta))
    assert times[0] == times[1]
    assert published[0] > len(jobs)
    assert published[1] == 0


def test_another_seed_moves_submissions_and_nothing_else():
    trace = trace_of(*[(100 * at, 5, 1, 1) for at in range(20)])
    moved = trace.seeded(3, 50)
    assert trace.seeded(0, 50) is trace
    assert moved == trace.seeded(3, 50) != trace.seeded(4, 50)
    assert {(job.name, job.run_ns) for job in moved.jobs} == {
        (job.name, job.run_ns) for job in trace.jobs
    }


# --- figures ------------------------------------------------------------------------------------


def test_the_figures_of_three_jobs():
    found = figures_of(replayed(trace_of((0, 10, 1, 8), (0, 20, 1, 8), (30, 3, 1, 8)))[0], 1.5)
    assert found["all"] == {
        "jobs": 3, "meanWaitSeconds": 3.3, "medianWaitSeconds": 0.0, "p95WaitSeconds": 0.0,
        "p99WaitSeconds": 0.0, "longestWaitSeconds": 10.0, "boundedSlowdown": 1.167,
    }  # fmt: skip
    assert (found["utilisationPercent"], found["mostWaiting"], found["meanWaiting"]) == (
        100,
        1,
        0.3,
    )
    assert list(found["bySize"]) == ["8"]


def test_a_wide_gang_is_counted_by_its_size_and_among_those_over_a_node():
    found = figures_of(replayed(trace_of((0, 1, 2, 8), (5, 1, 1, 3), nodes=2))[0], 0)
    assert {name: group["jobs"] for name, group in found["bySize"].items()} == {
        "4": 1, "16": 1, "over 8": 1,
    }  # fmt: skip


def test_an_interval_is_that_of_student():
    seeds = [
        {"setup": "x", "all": {"meanWaitSeconds": wait}, "bySize": {}, "byQueue": {}, "utilisationPercent": 1,
         "fragmentationPercent": 0, "evictions": 0, "neverStarted": 0}
        for wait in (10.0, 12.0, 14.0)
    ]  # fmt: skip
    (row,) = compared([seeds])
    assert row["mean wait s"] == {"mean": 12.0, "plusMinus": 4.969}  # 4.303 * 2 / sqrt(3)
    assert row["mean wait s of sizes over 8"] is None


# --- formats ------------------------------------------------------------------------------------


def written(folder: Path, text: str, name: str = "trace.csv") -> Path:
    file = folder / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return file


def test_our_own_csv(tmp_path):
    text = "submit,run,queue,pods,cpu,gpu,stated\n30,60,b,1,500m,0,90\n10.5,600,a,4,,8,\n"
    trace = read(written(tmp_path, text, "trace.csv.gz"))
    assert trace.jobs == (
        Job("job-1", 0, 600 * S, "a", "user", ((4, {GPU: 8, "pods": 1}),)),
        Job(
            "job-0", 19_500_000_000, 60 * S, "b", "user", ((1, {"vcore": 500, "pods": 1}),), 90 * S
        ),
    )


def test_the_standard_workload_format(tmp_path):
    lines = ["; MaxProcs: 8", "; MaxNodes: 4"]
    for number, submit, run, used, asked, stated in (
        (1, 5, 100, 3, -1, 200), (2, 9, 50, 1, 5, -1), (3, 9, -1, 1, 1, 1),
    ):  # fmt: skip
        lines.append(
            f"{number} {submit} 0 {run} {used} -1 -1 {asked} {stated} -1 1 7 1 -1 2 -1 -1 -1"
        )
    trace = read(written(tmp_path, "\n".join(lines), "log.swf"))
    two, one = {"vcore": 2000, "pods": 1}, {"vcore": 1000, "pods": 1}
    assert trace.jobs == (
        Job("job-1", 0, 100 * S, "queue-2", "user-7", ((1, two), (1, one)), 200 * S),
        Job("job-2", 4 * S, 50 * S, "queue-2", "user-7", ((2, two), (1, one))),
    )
    assert (trace.nodes, trace.capacity["vcore"]) == (4, 2000)


PHILLY = "timestamp,duration,num_gpus,cluster\n{}-10-09 07:01:55,1,1,a\n"


def swf(field: int, value: str) -> str:
    """Return a log of a job, whose field of that number says that."""
    fields = [1, 5, 0, 100, 3, -1, -1, 3, 200, -1, 1, 7, 1, -1, 2, -1, -1, -1]
    fields[field - 1] = value
    return f"; MaxProcs: 8\n; Note: {'-' * 40}\n{' '.join(map(str, fields))}\n"


@each_row(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "line 1: no format has these columns; docs/replay.md has"),
        (
            "submit,pods,gpu\n1,2,1\n",
            "line 1: no format has these columns: for the CSV of our own there must be run as well",
        ),
        (
            "name,cpu_milli,memory_mib\n",
            "for openb there must be num_gpu, gpu_milli as well",
        ),
        ("", "trace.csv: there is nothing in it; docs/replay.md has"),
        ("\n \n", "trace.csv: there is nothing in it"),
        ("submit,run,gpu,run\n1,2,1,2\n", "line 1: two columns are named 'run'"),
        ("submit,run\n", "it contains no job"),
        ("submit,run\n1,2\n", "line 2: pods: a pod that asks for something"),
        ("submit,run,gpu\n1,2,1\n1,-2,1\n", "line 3: run: a number from 0"),
        ("submit,run,gpu\nnan,2,1\n", "line 2: submit: a number from 0"),
        ("submit,run,gpu\n1,2\n", "line 2: 3 columns were expected, found 2"),
        ("submit,run,gpu,pods\n1,2,1,10001\n", "at most 10000 pods a job"),
        ("submit,run,gpu,name\n1,2,1,x\n1,2,1,x\n", "line 3: a second job 'x'"),
        ("submit,run,gpu\n1,2," + "1" * 20_000, "line 2: at most 10000 characters"),
        ("submit,run,gpu\n1,2,1e\n", "line 2: gpu: '1e' is not a quantity"),
        (
            "submit,run,gpu\n1,2,0.5\n",
            "line 2: gpu: nvidia.com/gpu: a whole number was expected, found '0.5'",
        ),
        ("; x\n1 2 3\n", "line 2: 18 fields were expected, found 3"),
        (
            "; x\n" + "1 " * 17 + "x\n",
            "line 2: Think Time from Preceding Job: a number was expected, found 'x'",
        ),
        (swf(4, "²"), "line 3: Run Time: a number was expected"),
        (swf(4, "9" * 19), "line 3: Run Time: a number from 0 to"),
        (swf(2, "-1"), "line 3: Submit Time: a number from 0 to"),
        (swf(8, "1" + "0" * 30), "line 3: Requested Number of Processors: a number was"),
        (swf(8, "99999999"), "line 3: at most 10000 pods a job"),
        (swf(15, "1" + "0" * 18), "line 3: Queue Number: a number from 0"),
        ("; MaxProcs: " + "9" * 5000, "line 1: MaxProcs: a whole number"),
        ("submit,run,gpu\n1,1" + "0" * 30 + ",1\n", "line 2: run: a number from 0"),
        ("submit,run,gpu\n1,1e30,1\n", "line 2: run: a number from 0"),
        ("submit,run,gpu\n1,abc,1\n", "line 2: run: a number from 0"),
        ('submit,run,gpu\n"1,2,3\n', "line 2: unexpected end of data"),
        ("submit,run,gpu,queue\n1,2,1,a b\n", "line 2: 'a b' is no name of a queue"),
        ("submit,run,gpu,name\n1,2,1," + "n" * 201, "line 2: a job has a name of at most 200"),
        ("submit,run,gpu,user\n1,2,1,\x1b[0m\n", "line 2: a user has a name of at most 200"),
        (
            PHILLY.format(1017) + PHILLY.format(2017).partition("\n")[2],
            "job-1 is submitted more than 3000000000 s after job-0",
        ),
        ("job_id,num_gpu,submit_time,duration\n1,-1,1,1\n", "line 2: num_gpu: a whole number"),
        (
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\np,1,1,0,0,9,8\n",
            "line 2: deletion_time: a time that is not before creation_time",
        ),
        ("timestamp,duration,num_gpus,cluster\n2017,1,1,a\n", "line 2: timestamp: a moment like"),
    ],
)
def test_what_does_not_hold_is_said_with_its_line(tmp_path, text, said):
    with pytest.raises(TraceError, match="trace") as caught:
        read(written(tmp_path, text))
    assert said in str(caught.value)


def test_a_line_without_an_end_is_refused_before_it_is_read(tmp_path, monkeypatch):
    file = tmp_path / "trace"
    file.write_bytes(gzip.compress(b"submit,run,gpu\n" + b"1" * 100_000_000))
    tracemalloc.start()
    with pytest.raises(TraceError, match="line 2: at most 10000 characters"):
        read(file)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2_000_000
    monkeypatch.setattr("tools.replay.lines.MAX_LINES", 3)
    with pytest.raises(TraceError, match="line 4: at most 3 lines"):
        read(written(tmp_path, "submit,run,gpu\n\n1,1,1\n\n"))


def test_an_archive_is_known_by_its_beginning_and_a_byte_order_mark_is_passed_over(tmp_path):
    text = "\ufeffsubmit,run,gpu\r\n1,2,1\r\n"
    plain = read(written(tmp_path, text)).jobs
    (tmp_path / "trace").write_bytes(gzip.compress(text.encode()))
    assert read(tmp_path / "trace").jobs == plain
    (tmp_path / "plain.gz").write_text(text)
    assert read(tmp_path / "plain.gz").jobs == plain
    (tmp_path / "wide.csv").write_bytes(text.encode("utf-16"))
    with pytest.raises(TraceError, match="this is no text in UTF-8"):
        read(tmp_path / "wide.csv")


def test_users_and_queues_of_swf_are_whole_and_what_is_not_known_is_no_number(tmp_path):
    (one,) = read(written(tmp_path, swf(15, "-1"), "log.swf")).jobs
    (other,) = read(written(tmp_path, swf(12, "7.0"), "log.swf")).jobs
    assert (one.queue, one.user) == ("jobs", "user-7") != (other.queue, other.user)
    assert (other.queue, other.user) == ("queue-2", "user-7")


def test_nodes_that_cannot_be_are_said_before_they_are_made(muster, tmp_path):
    log = "; MaxProcs: 2000000000\n" + swf(1, "1")
    result = muster("replay", str(written(tmp_path, log.replace("; MaxProcs: 8\n", ""), "x.swf")))
    assert (result.status, "at most 100,000 nodes" in result.err) == (2, True)
    result = muster("replay", str(written(tmp_path, swf(1, "1"))), "--nodes", "9" * 30)
    assert (result.status, "at most 100,000 nodes" in result.err) == (2, True)


def test_a_replay_ends_at_a_hundred_years(muster, tmp_path):
    text = "submit,run,gpu\n" + "0,3000000000,8\n" * 2
    on = ("--nodes", "1", "--capacity", "nvidia.com/gpu=8")
    result = muster("replay", str(written(tmp_path, text)), *on)
    assert (result.status, "run for more than 100 years" in result.err) == (2, True)


def test_a_gang_that_nodes_cannot_hold_waits_to_the_end_of_the_others():
    outcome, times = replayed(trace_of((0, 30, 1, 8), (1, 5, 2, 8), nodes=1))
    assert times == [(0, 30), None]
    assert outcome.series.at_ns[-1] == 30 * S


def test_a_broken_archive_and_no_file_are_said(tmp_path):
    file = tmp_path / "x.csv.gz"
    file.write_bytes(b"\x1f\x8b no archive")
    for path in (file, tmp_path / "none.csv"):
        with pytest.raises(TraceError, match=str(path)):
            read(path)


@pytest.mark.parametrize(
    ("file", "jobs", "pods", "nodes"),
    [
        ("philly/philly.csv.gz", 82_247, 82_755, 75),
        ("muri-philly-vc/trace1.csv.gz", 1_494, 1_609, 8),
        ("openb/openb_pod_list_default.csv.gz", 8_152, 8_152, 0),
        ("openb/openb_pod_list_multigpu20.csv.gz", 8_324, 8_324, 0),
    ],
)
def test_the_real_traces(shared_data, file, jobs, pods, nodes):
    trace = read(shared_data / "data/traces" / file)
    assert (len(trace.jobs), sum(job.pods for job in trace.jobs), trace.nodes) == (
        jobs,
        pods,
        nodes,
    )


# --- the command --------------------------------------------------------------------------------

CSV = "submit,run,queue,pods,gpu\n0,600,train,4,8\n30,60,notebooks,1,1\n"


def test_a_trace_is_a_table_or_data(muster, tmp_path):
    file = written(tmp_path, CSV)
    on = ("--nodes", "5", "--capacity", "nvidia.com/gpu=8")
    result = muster("replay", str(file), *on)
    assert result.status == 0
    assert "trace.csv on 5 nodes, 40 GPUs: 2 of 2 jobs started, 0 evictions" in result.out
    assert "notebooks" in result.out
    found = json.loads(muster("replay", str(file), *on, "-o", "json").out)
    assert (found["started"], found["all"]["meanWaitSeconds"], found["seed"]) == (2, 0.0, 0)


def test_what_never_started_is_said_with_why_in_a_table_side_by_side_and_on_a_page(
    muster, tmp_path
):
    jobs = "submit,run,queue,pods,gpu\n0,60,train,4,8\n5,60,train,1,9\n6,60,train,2,9\n"
    file, page = written(tmp_path, jobs), tmp_path / "page.html"
    on = ("--nodes", "2", "--capacity", "nvidia.com/gpu=8", "--html", str(page))
    said = "3 never started, the first: application job-0 can never fit: "
    printed = muster("replay", str(file), *on).out
    assert "0 of 3 jobs started" in printed
    assert said in printed
    assert said in page.read_text()
    large = written(tmp_path, "{nodes: 1, capacity: nvidia.com/gpu=64}", "large.yaml")
    small = written(tmp_path, "{nodes: 3, capacity: nvidia.com/gpu=8}", "small.yaml")
    lines = muster("replay", str(file), "--compare", str(large), str(small)).out.splitlines()
    (told,) = [line for line in lines if "never started," in line]
    assert told.startswith(f"small: {said}")


def test_setups_are_compared_side_by_side(muster, tmp_path):
    file = written(tmp_path, CSV)
    for name, nodes in (("few", 4), ("many", 8)):
        setup = f"nodes: {nodes}\ncapacity: nvidia.com/gpu=8\nscheduler: {{reservations: none}}\n"
        written(tmp_path, setup, f"{name}.yaml")
    setups = (str(tmp_path / "few.yaml"), str(tmp_path / "many.yaml"))
    result = muster("replay", str(file), "--seeds", "2", "--spread", "10", "--compare", *setups,
                    "-o", "json")  # fmt: skip
    found = json.loads(result.out)
    assert [row["setup"] for row in found["compared"]] == ["few", "many"]
    assert found["compared"][0]["mean wait s"]["mean"] > 0
    assert found["compared"][1]["mean wait s"] == {"mean": 0.0, "plusMinus": 0.0}
    assert len(found["replays"]) == 4


def test_old_names_of_settings_are_read_and_warned_of(muster, tmp_path):
    file = written(tmp_path, CSV)
    on = ("--nodes", "5", "--capacity", "nvidia.com/gpu=8", "--scheduler", "reservationsFor=asks")
    result = muster("replay", str(file), *on)
    assert result.status == 0
    said = "setup: scheduler: warning: reservationsFor: asks is now reservations: asks"
    assert said in result.err
    wrong = muster("replay", str(file), *on, "--scheduler", "gangLane=on")
    assert wrong.status != 0
    assert "gangLane: one of enabled, disabled, found 'on'" in wrong.err


def test_a_page_is_written_beside_what_is_printed(muster, tmp_path):
    file, page = written(tmp_path, CSV), tmp_path / "page.html"
    result = muster(
        "replay", str(file), "--nodes", "5", "--capacity", "nvidia.com/gpu=8", "--html", str(page)
    )
    assert result.status == 0
    assert "2 of 2 jobs started" in result.out
    assert "<h1>trace.csv: 2 jobs</h1>" in page.read_text()


def test_setups_of_one_name_in_two_folders_are_told_apart(muster, tmp_path):
    file, setups = written(tmp_path, CSV), []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        text = "{nodes: 5, capacity: nvidia.com/gpu=8}"
        setups.append(str(written(tmp_path / folder, text, "setup.yaml")))
    result = muster("replay", str(file), "--compare", *setups, "-o", "name")
    assert result.out.split() == setups


@each_row(
    ("arguments", "said"),
    [
        (("--html", "none/page.html"), "--html none/page.html: a file in a folder that is there"),
        (("--html", "."), "--html .: a file in a folder that is there"),
        (("--html", "/dev/full"), "--html /dev/full: No space left on device"),
        (("--compare", *[f"{at}.yaml" for at in range(11)]), "at most 10 setups, found 11"),
        (("--compare", "a.yaml", "a.yaml"), "a setup is named twice"),
        (("--html", "p" * 300), "File name too long"),
        (("--html", "{trace}"), "that is read here: another file was expected"),
        (("--spread", "1" + "0" * 30), "'--spread'"),
        (("--resample", "days", "--seeds", "2"), "'--resample'"),
        (("--resample", "weeks"), "--seeds 2 or more was expected"),
        (("--resample", "weeks", "--seeds", "2"), "has 1 week: 2 were expected"),
    ],
)
def test_a_page_or_setups_that_cannot_be_are_said(muster, tmp_path, arguments, said):
    on = ("--nodes", "5", "--capacity", "nvidia.com/gpu=8")
    file = written(tmp_path, CSV)
    arguments = [word.replace("{trace}", str(file)) for word in arguments]
    result = muster("replay", str(file), *on, *arguments)
    status = Exit.NO_FILE if said == "File name too long" else Exit.USAGE
    assert (result.status, said in result.err) == (status, True)
    assert file.read_text() == CSV
    assert bool(result.out) == ("/dev/full" in arguments)


@each_row(
    ("arguments", "said"),
    [
        (("--nodes", "5", "--scheduler", "policy=none"), "scheduler: policy: one of"),
        (("--scheduler", "policy"), "NAME=VALUE was expected"),
        (("--scheduler", "a=1", "--scheduler", "a=2"), "--scheduler a=2: a is named twice"),
        ((), "the trace has no nodes"),
        (("--nodes", "5", "--queues", "none.yaml"), "none.yaml"),
        (("--nodes", "5", "--queues", "/dev/zero"), "/dev/zero: more than 8388608 bytes"),
        (("--nodes", "/dev/zero"), "--nodes /dev/zero: more than 8388608 bytes"),
        (("--nodes", "0", "--capacity", "cpu=1"), "at least one node was expected"),
        (("--nodes", "5", "--scheduler", "plugins=none"), "plugin none: it is not installed"),
        (("other.csv",), "setups go behind --compare"),
    ],
)
def test_what_is_typed_wrong_is_a_sentence_and_nothing_runs(muster, tmp_path, arguments, said):
    result = muster("replay", str(written(tmp_path, CSV)), *arguments)
    is_file = said.startswith(("none.yaml", "/dev/zero", "--nodes /dev/zero"))
    assert result.status == (Exit.NO_FILE if is_file else Exit.USAGE)
    assert said in result.err


# Lists of ten of the list before: written out, the last would have a million texts.
BOMB = "\n".join(
    f"{key}: &{key} [{', '.join([value] * 10)}]"
    for key, value in zip(
        ("capacity", "nodes", "queues", "scheduler", "more", "most"),
        ("x", "*capacity", "*nodes", "*queues", "*scheduler", "*more"),
        strict=True,
    )
)


def test_a_setup_that_does_not_hold_is_said(tmp_path):
    trace = trace_of((0, 1, 1, 1))
    for text, said in (
        ("node: 3", "node: no such key"),
        ("- 1", "a map with nodes"),
        ("queues: {partitions: []}", "queues: "),
        ("scheduler: 3", "a map of settings"),
        ("{", "bad.yaml"),
        ("1: 2\na: 3", "1: no such key"),
        ("nodes: 1\n\nnodes: 2", 'line 3: mapping key "nodes" already defined at line 1'),
        ("scheduler:\n  backfill: enabled\n  backfill: disabled", "already defined at line 2"),
        ("nodes: !!int " + "9" * 5_000, "line 1: a value cannot be read"),
        ("nodes: !!timestamp 2026-99-99x", "line 1: a value cannot be read"),
        ("nodes: " + "[" * 50_000, "line 1: nested deeper than 60"),
        ("nodes: 1\n---\nnodes: 2", "one document was expected, found 2"),
        ("nodes: true", "nodes: a number of nodes, or the name of their file was expected"),
        ("nodes: -3", "found -3"),
        ('nodes: "a\\0b"', "no file has such a name"),
        ('queues: "a\\0b"', "no file has such a name"),
        ("capacity: {cpu: 1}", "capacity: a list like"),
        ("scheduler: {backfill: null}", "scheduler: backfill: a text, a number or a list"),
        (BOMB, "more than 250000 values once its aliases are written out"),
    ):
        with pytest.raises(TraceError) as caught:
            read_setup(trace, written(tmp_path, text, "bad.yaml"), "bad")
        assert said in str(caught.value)


def test_nodes_whose_sum_no_ledger_holds_are_refused_before_a_job_runs():
    trace = trace_of((0, 1, 1, 1))
    most = f"nvidia.com/gpu={2**62}"
    assert len(setup_of(trace, "one", nodes="1", capacity=most).nodes) == 1
    with pytest.raises(TraceError, match=f"have {2**63} of nvidia.com/gpu in all, at most"):
        setup_of(trace, "two", nodes="2", capacity=most)


# --- what became of each job; any table; settings -----------------------------------------------

ON = ("--capacity", "nvidia.com/gpu=8", "--nodes", "2")


def test_what_became_of_each_job_is_a_file(muster, tmp_path):
    text = "submit,run,name,queue,user,pods,gpu\n0,60,a,x,ann,2,8\n5.5,30,b,y,bob,1,4\n9,1,c,y,bob,3,8\n"
    file, out = written(tmp_path, text), tmp_path / "jobs.csv"
    result = muster("replay", str(file), *ON, "--jobs-out", str(out))
    assert result.status == 0
    head, *rows = [line.split(",") for line in out.read_text().splitlines()]
    a, b, c = (dict(zip(head, row, strict=True)) for row in rows)
    assert (a["submitted"], a["started"], a["ended"], a["evictions"]) == ("0", "0", "60", "0")
    assert len(a["nodes"].split()) == 2
    assert (b["submitted"], b["started"], b["ended"]) == ("5.5", "60", "90")
    assert (c["started"], c["left_out"]) == ("", "larger than the cluster")
    assert (
        "1 of 3 jobs are larger than the cluster and can never fit, the first c: 3 of" in result.err
    )


def test_a_log_of_what_became_of_jobs_is_read_again(muster, tmp_path):
    file, out = written(tmp_path, CSV), tmp_path / "jobs.swf"
    on = ("--nodes", "5", "--capacity", "nvidia.com/gpu=8", "--jobs-out", str(out))
    assert muster("replay", str(file), *on).status == 0
    again = read(out)
    assert [(job.submitted_ns, job.run_ns, job.amount("vcore")) for job in again.jobs] == [
        (0, 600 * S, 32_000), (30 * S, 60 * S, 1_000),
    ]  # fmt: skip
    assert len({job.queue for job in again.jobs}) == 2


@pytest.mark.parametrize("where", ["{folder}", "{folder}/no/such.csv", "{trace}"])
def test_where_no_file_can_be_is_said_before_the_replay(muster, tmp_path, where):
    file = written(tmp_path, CSV)
    out = where.format(folder=tmp_path, trace=file)
    result = muster("replay", str(file), *ON, "--jobs-out", out)
    assert result.status != 0
    assert "--jobs-out" in result.err
    assert file.read_text() == CSV


def test_any_table_is_read_where_it_is_said_which_column_is_which(tmp_path):
    text = (
        "job_id,vc,user,gpu_num,submit_time,duration,queue\n"
        "7,v,u,20,2020-04-01 00:00:05,90.5,33\n8,v,u,0,2020-04-01 00:00:06,9,1\n"
    )
    ours = {"submit": "submit_time", "run": "duration", "gpus": "gpu_num", "queue": "vc"}
    trace = read(written(tmp_path, text), ours)
    (job,) = trace.jobs
    assert (job.queue, job.user, job.run_ns) == ("v", "u", 90_500_000_000)
    assert [(count, pod[GPU]) for count, pod in job.groups] == [(2, 8), (1, 4)]
    assert trace.left_out == {"asks for no GPU": 1}


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        ({"when": "a"}, "'when' is not a column of Muster"),
        ({"submit": "x"}, "there is no column 'x'"),
        ({"submit": "a"}, "must say which column is run"),
    ],
)
def test_columns_that_do_not_hold_are_said(tmp_path, ours, said):
    with pytest.raises(TraceError, match=said):
        read(written(tmp_path, "a,b\n1,2\n"), ours)


def test_a_gang_that_can_never_fit_keeps_nobody_waiting_for_ever(muster, tmp_path):
    text = "submit,run,pods,gpu\n0,60,3,8\n5,60,1,8\n"
    for admission in ("partial", "queue", "cluster"):
        setting = ("--scheduler", f"gangAdmission={admission}")
        result = muster("replay", str(written(tmp_path, text)), *ON, *setting, "-o", "json")
        found = json.loads(result.out)
        assert (found["started"], found["leftOut"]) == (1, {"larger than the cluster": 1})
        assert "can never fit" in found["neverStartedFor"]


def test_tables_of_setups_side_by_side_have_at_most_a_hundred_columns(muster, tmp_path):
    jobs = "".join(f"{at},{30 + at},{1 + 2 * (at % 3)},8,q{at % 2}\n" for at in range(12))
    file = written(tmp_path, f"submit,run,pods,gpu,queue\n{jobs}")
    on = ("--nodes", "4", "--capacity", "nvidia.com/gpu=8")
    for more in ((), ("--tune", "wide", "--seeds", "2"), ("--placeholder-timeout", "60")):
        printed = muster("replay", str(file), *on, *more).out.splitlines()
        assert max(len(line) for line in printed if "  " in line) <= 100


def test_forecasts_of_a_replay_are_compared_with_what_came(muster, tmp_path):
    jobs = "".join(f"{at},100,1,8,100\n" for at in range(3))
    file = written(tmp_path, f"submit,run,pods,gpu,stated\n{jobs}")
    on = ("--nodes", "1", "--capacity", "nvidia.com/gpu=8", "--forecasts", "1")
    printed = muster("replay", str(file), *on).out
    assert (
        "forecasts: 2 of 2 were told a start; median error 0.0 % of the wait; 100.0 % started by the "
        "time told for nine of ten"
    ) in printed
    assert json.loads(muster("replay", str(file), *on, "-o", "json").out)["forecasts"]["asked"] == 2


def test_jain_s_index_and_each_queue_s_share():
    found = figures_of(
        replayed(trace_of((0, 10, 1, 8, "a"), (0, 10, 1, 8, "b"), (40, 1, 1, 8)))[0], 0
    )
    assert found["jainOfQueues"] == 0.9  # of slowdowns of 1 and 2: 9 / (2 * 5)
    assert found["utilisationByQueue"] == {"a": 25.0, "b": 25.0}


def test_settings_are_chosen_by_a_goal(muster, tmp_path):
    jobs = "".join(f"{at},{30 + at},{1 + 2 * (at % 2)},8\n" for at in range(12))
    file = written(tmp_path, f"submit,run,pods,gpu\n{jobs}")
    on = ("--nodes", "4", "--capacity", "nvidia.com/gpu=8", "--tune", "mean")
    printed = muster("replay", str(file), *on).out
    assert "is best by the least mean wait" in printed
    assert "muster.scheduler.preset" in printed
    found = json.loads(muster("replay", str(file), *on, "-o", "json").out)
    means = [row["mean wait s"]["mean"] for row in found["compared"]]
    assert means == sorted(means)
    assert found["best"] == found["compared"][0]["setup"]


# --- other months ---------------------------------------------------------------------------------

DAY = 86_400


def month() -> Trace:
    """Return four weeks of three users: in week w user u submits a job of u GPUs at day u, for w."""
    jobs = [
        Job(
            f"j-{week}-{user}", (7 * week + user) * DAY * S, (week + 1) * S, "a", f"user-{user}",
            ((1, {GPU: user}),),
        )
        for week in range(4)
        for user in range(1, 4)
    ]  # fmt: skip
    return Trace("month", in_order(jobs), GPU, 1, {GPU: 8, "pods": 110})


def test_a_resampled_month_has_weeks_and_users_of_the_trace_and_is_the_same_for_a_seed():
    trace = month()
    first_ns = min(job.submitted_ns for job in trace.resampled(1).jobs)
    assert first_ns == 0
    assert trace.resampled(0) is trace
    assert trace.resampled(7) == trace.resampled(7)
    drawn = [trace.resampled(seed) for seed in range(1, 9)]
    assert len({tuple(job.name for job in other.jobs) for other in drawn}) == 8
    for other in drawn:
        assert len({job.name for job in other.jobs}) == len(other.jobs)
        weeks_of: dict[str, set[int]] = {}
        for job in other.jobs:
            user = job.user.partition("~")[0]
            assert job.groups == ((1, {GPU: int(user[-1])}),)  # a user's jobs are that user's
            weeks_of.setdefault(job.user, set()).add(job.run_ns // S)
        assert (
            len({frozenset(weeks) for weeks in weeks_of.values()}) == 1
        )  # all have the same weeks


def test_a_seed_of_replay_is_another_month_where_that_is_asked_for(muster, tmp_path):
    lines = [
        f"{week * 7 * DAY + user * 60},600,{user},1,1" for week in range(3) for user in range(9)
    ]
    file = written(tmp_path, "submit,run,user,pods,gpu\n" + "\n".join(lines))
    on = ("--nodes", "1", "--capacity", "nvidia.com/gpu=8", "--seeds", "3", "-o", "json")
    page = tmp_path / "page.html"
    other = muster("replay", str(file), *on, "--resample", "weeks", "--html", str(page))
    moved = muster("replay", str(file), *on)
    assert other.status == moved.status == Exit.DONE
    jobs = [[found["jobs"] for found in json.loads(r.out)["replays"]] for r in (moved, other)]
    assert jobs[0] == [27, 27, 27]
    assert jobs[1][0] == 27
    assert "drawn from its weeks and users" in page.read_text()
