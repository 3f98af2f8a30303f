"""What-ifs beside the decisions: by a copy of the process, which keeps nothing of it."""

import os
import signal
import socket
import time

import pytest

from services.core import forecast_process
from services.core.forecast_process import ENDED, ForecastProcess
from services.core.scheduler.policies.questions import BUSY, MOST_NS, POLL_NS, TOO_LONG, Questions
from shared.messages.protocol import Tick
from shared.messages.what_if import Forecast, WhatIf
from tests.builders import Core, config_of, section
from tests.unit.core.test_what_if import envelope

LONG = "a long answer" * 100_000  # more than a pipe takes at once


def answered(copy, seconds=20):
    """Return what a copy answers."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = copy.poll()
        if found is not None:
            return found
        time.sleep(0.001)
    raise AssertionError("no answer")


def one_waits(**more):
    core = Core(config_of("{name: a}"), **more)
    core.node("n0", vcore=2)
    for name in ("runs", "late"):
        core.application(name, "root.a")
        core.asks(name, [f"{name}-0"], {"vcore": 2})
    return core


def ask(core, number=1, **more):
    """Hand a question in; return what is answered at once."""
    core.scheduler.handle(envelope(WhatIf(**more), number, f"api.one#{number}"), core.now_ns)
    return [item.message for item in core.scheduler.flush(core.now_ns) if item.reply_to]


def tick(core):
    core.now_ns += POLL_NS
    core.scheduler.handle(envelope(Tick()), core.now_ns)
    return [item.message for item in core.scheduler.flush(core.now_ns) if item.reply_to]


def test_decisions_go_on_while_a_copy_answers_of_what_was_when_it_was_asked():
    core = one_waits(questions=Questions(ForecastProcess()))
    assert core.scheduler.next_due_ns() is None
    assert ask(core, add_nodes=1) == []
    assert core.scheduler.next_due_ns() == core.now_ns + POLL_NS
    assert len(section(core.node("n1", vcore=2), "new_allocations")) == 1
    found = []
    while not found:
        found = tick(core)
        time.sleep(0.001)
    ((told,),) = [answer.applications for answer in found]
    assert (told.application_id, told.placed) == ("late", 1)
    assert core.scheduler.next_due_ns() is None
    core.check()


def test_a_forecast_of_a_copy_is_compared_with_what_comes():
    core = one_waits(questions=Questions(ForecastProcess()))
    core.asks("runs", ["x"], {"vcore": 2}, allocation_tags={"muster.io/run-seconds": "5"})
    core.node("n1", vcore=2)
    assert ask(core, when=("late",)) == []
    while not tick(core):
        time.sleep(0.001)
    core.node("n2", vcore=2)
    assert core.scheduler.figures()["forecasts_compared_total"] == {"default": 1}


class Never:
    """It never answers."""

    is_stopped = False

    def start(self, work):
        return ""

    def poll(self):
        return None

    def stop(self):
        self.is_stopped = True


def test_an_answer_that_takes_too_long_is_given_up():
    never = Never()
    core = one_waits(questions=Questions(never))
    assert ask(core, 1, add_nodes=1) == []
    assert [answer.message for answer in ask(core, 2, add_nodes=1)] == [BUSY]
    assert tick(core) == []
    core.now_ns += MOST_NS
    assert [answer.message for answer in tick(core)] == [TOO_LONG]
    assert never.is_stopped


def test_a_copy_answers_however_long_the_answer():
    copy = ForecastProcess()
    assert copy.start(lambda: Forecast(done=True, message=LONG)) == ""
    assert answered(copy).message == LONG


def test_a_copy_keeps_no_file_and_no_connection():
    first, second = socket.socketpair()
    copy = ForecastProcess()

    def work():
        try:
            os.fstat(first.fileno())
        except OSError:
            return Forecast(done=True, message="closed")
        return Forecast(done=True, message="kept")

    with first, second:
        copy.start(work)
        assert answered(copy).message == "closed"


def test_a_copy_that_fails_or_is_killed_has_no_answer_and_leaves_no_process():
    for work in (lambda: 1 // 0, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        copy = ForecastProcess()
        copy.start(work)
        pid = copy._pid
        assert answered(copy) == Forecast(done=False, message=ENDED)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_copy_that_is_given_up_is_gone():
    copy = ForecastProcess()
    copy.start(lambda: time.sleep(60))
    pid = copy._pid
    del copy
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_question_is_refused_where_the_container_has_no_room_for_a_copy(monkeypatch, tmp_path):
    monkeypatch.setattr(forecast_process, "_CGROUP", tmp_path)
    core = one_waits(questions=Questions(ForecastProcess()))
    (tmp_path / "memory.stat").write_text("anon 1048576\nfile 9\n")
    (tmp_path / "memory.max").write_text("2097152\n")
    (answer,) = ask(core, add_nodes=1)
    assert answer.message.startswith("not enough memory to answer: the core has 1 of 2 MiB in use")
    for limit in ("max\n", f"{2**50}\n"):
        (tmp_path / "memory.max").write_text(limit)
        assert ask(core, add_nodes=1) == []
        while not tick(core):
            time.sleep(0.001)


def test_a_question_is_refused_where_no_process_can_be_started(monkeypatch):
    def fork():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(forecast_process.os, "fork", fork)
    core = one_waits(questions=Questions(ForecastProcess()))
    (answer,) = ask(core, add_nodes=1)
    assert (answer.done, "no process could be started" in answer.message) == (False, True)
