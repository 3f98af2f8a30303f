"""The application's states and transitions.

Source: docs/rules/applications.md#states. The table is the state machine: an event without a row
for the current state is a bug, and crashes. (The ``waiting`` of early versions is Completing; their
``killed`` is Failed after Failing.)
"""

from enum import StrEnum


class ApplicationState(StrEnum):
    """The state of an application, in YuniKorn's current names."""

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
    """An event that changes an application's state."""

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
    """An event that the table does not allow in a state: a bug, never an input error."""


def next_state(state: ApplicationState, event: ApplicationEvent) -> ApplicationState:
    """Return the next state. Raises IllegalTransitionError if the table has no row."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransitionError(f"{event} is not possible in state {state}") from None
