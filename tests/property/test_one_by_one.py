"""What is done for many at once comes to the same as one by one, to the last word that is told.

A twin of every scheduler takes asks in one at a time, and places one at a time.
"""

from contextlib import contextmanager
from unittest import mock

from hypothesis import settings

from services.core.configuration import parse_configuration
from services.core.scheduler.actions import runs
from services.core.scheduler.intake import arrivals
from services.core.scheduler.scheduler import Scheduler
from tests.builders import Core, envelope
from tests.property.test_scheduler_machine import PreemptionMachine, SchedulerMachine


def take_each(partition, requests, take_one):
    for request in requests:
        take_one(partition, request)


@contextmanager
def one_by_one():
    with (
        mock.patch.object(arrivals, "take_all", take_each),
        mock.patch.object(runs, "place", return_value=0),
    ):
        yield


class Twins(Core):
    """A core, and beside it one that does everything one by one."""

    def __init__(self, config: str = "", epoch: int = 1, settings: tuple = ()) -> None:
        self.other = Scheduler("core-test", parse_configuration)
        super().__init__(config, epoch, settings)

    def send(self, message, *, epoch=None):
        known = len(self.answers)
        responses = super().send(message, epoch=epoch)
        with one_by_one():
            wrapped = envelope(message, "twin", epoch=self.epoch if epoch is None else epoch)
            told = self.other.handle(wrapped, self.now_ns) + self.other.flush(self.now_ns)
        assert self.answers[known:] == told
        return responses


class OneByOneMachine(SchedulerMachine):
    make_core = Twins


class PreemptionOneByOneMachine(PreemptionMachine):
    make_core = Twins


TestOneByOne = OneByOneMachine.TestCase
TestPreemptionOneByOne = PreemptionOneByOneMachine.TestCase
TestOneByOne.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestPreemptionOneByOne.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
