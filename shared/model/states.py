"""The application's states and the only moves between them.

Source: docs/rules/applications.md#states. The table is the machine: an event that has no row for
the present state is a bug of ours, and crashes. (The seeds' ``waiting`` is Completing; their
``killed`` is Failed after Failing.)
"""

from enum import StrEnum


class ApplicationState(StrEnum):
    """What an application is doing, in YuniKorn's present names."""

    NEW = "New"
    ACCEPTED = "Accepted"
    RUNNING = "Running"
    REJECTED = "Rejected"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    FAILING = "Failing"
    FAILED = "Failed"
    EXPIRED = "Expired"
    RESUMING = "Resuming"


class ApplicationEvent(StrEnum):
    """What makes an application change its state."""

    RUN = "runApplication"
    REJECT = "rejectApplication"
    COMPLETE = "completeApplication"
    FAIL = "failApplication"
    EXPIRE = "expireApplication"
    RESUME = "resumeApplication"


_S = ApplicationState
_E = ApplicationEvent

TRANSITIONS: dict[tuple[ApplicationState, ApplicationEvent], ApplicationState] = {
    (_S.NEW, _E.REJECT): _S.REJECTED,
    (_S.NEW, _E.RUN): _S.ACCEPTED,
    (_S.RESUMING, _E.RUN): _S.ACCEPTED,
    (_S.ACCEPTED, _E.RUN): _S.RUNNING,
    (_S.RUNNING, _E.RUN): _S.RUNNING,
    (_S.COMPLETING, _E.RUN): _S.RUNNING,
    (_S.ACCEPTED, _E.COMPLETE): _S.COMPLETING,
    (_S.RUNNING, _E.COMPLETE): _S.COMPLETING,
    (_S.COMPLETING, _E.COMPLETE): _S.COMPLETED,
    (_S.NEW, _E.FAIL): _S.FAILING,
    (_S.ACCEPTED, _E.FAIL): _S.FAILING,
    (_S.RUNNING, _E.FAIL): _S.FAILING,
    (_S.FAILING, _E.FAIL): _S.FAILED,
    (_S.NEW, _E.RESUME): _S.RESUMING,
    (_S.ACCEPTED, _E.RESUME): _S.RESUMING,
    (_S.COMPLETED, _E.EXPIRE): _S.EXPIRED,
    (_S.FAILED, _E.EXPIRE): _S.EXPIRED,
    (_S.REJECTED, _E.EXPIRE): _S.EXPIRED,
}

ENDED = (_S.COMPLETED, _S.FAILED, _S.REJECTED, _S.EXPIRED)


class IllegalTransitionError(AssertionError):
    """An event came that the state has no row for: a bug, never an input error."""


def next_state(state: ApplicationState, event: ApplicationEvent) -> ApplicationState:
    """Return the state that follows; raises IllegalTransitionError where the table has no row."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"{event} is not possible in state {state}") from None
