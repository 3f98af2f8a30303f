"""The numeric codes of events, with YuniKorn's names.

Source: docs/rules/events.md#numbers.
"""

from enum import IntEnum

from shared.model.states import ApplicationState


class EventType(IntEnum):
    """The kind of object that an event concerns."""

    UNKNOWN = 0
    REQUEST = 1
    APP = 2
    NODE = 3
    QUEUE = 4
    USERGROUP = 5


class ChangeType(IntEnum):
    """What happened to the object."""

    NONE = 0
    SET = 1
    ADD = 2
    REMOVE = 3


class ChangeDetail(IntEnum):
    """Which part of it changed, or why."""

    DETAILS_NONE = 0
    REQUEST_CANCEL = 100
    REQUEST_ALLOC = 101
    REQUEST_TIMEOUT = 102
    APP_ALLOC = 200
    APP_REQUEST = 201
    APP_REJECT = 202
    APP_NEW = 203
    APP_ACCEPTED = 204
    APP_RUNNING = 206
    APP_COMPLETING = 207
    APP_COMPLETED = 208
    APP_FAILING = 209
    APP_FAILED = 210
    APP_RESUMING = 211
    APP_EXPIRED = 212
    APP_CANNOTRUN_QUEUE = 213
    APP_RUNNABLE_QUEUE = 214
    APP_CANNOTRUN_QUOTA = 215
    APP_RUNNABLE_QUOTA = 216
    NODE_DECOMISSION = 300
    NODE_SCHEDULABLE = 302
    NODE_ALLOC = 303
    NODE_CAPACITY = 304
    NODE_OCCUPIED = 305
    NODE_RESERVATION = 306
    QUEUE_CONFIG = 400
    QUEUE_DYNAMIC = 401
    QUEUE_TYPE = 402
    QUEUE_MAX = 403
    QUEUE_GUARANTEED = 404
    QUEUE_APP = 405
    QUEUE_ALLOC = 406
    QUEUE_PREEMPTION = 407
    ALLOC_CANCEL = 500
    ALLOC_PREEMPT = 501
    ALLOC_TIMEOUT = 502
    ALLOC_REPLACED = 503
    ALLOC_NODEREMOVED = 504
    UG_USER_LIMIT = 600
    UG_GROUP_LIMIT = 601
    UG_APP_LINK = 602
    UG_USER_RESOURCE = 603
    UG_GROUP_RESOURCE = 604


DETAIL_OF_STATE: dict[ApplicationState, ChangeDetail] = {
    ApplicationState.NEW: ChangeDetail.APP_NEW,
    ApplicationState.ACCEPTED: ChangeDetail.APP_ACCEPTED,
    ApplicationState.RUNNING: ChangeDetail.APP_RUNNING,
    ApplicationState.REJECTED: ChangeDetail.APP_REJECT,
    ApplicationState.COMPLETING: ChangeDetail.APP_COMPLETING,
    ApplicationState.COMPLETED: ChangeDetail.APP_COMPLETED,
    ApplicationState.FAILING: ChangeDetail.APP_FAILING,
    ApplicationState.FAILED: ChangeDetail.APP_FAILED,
    ApplicationState.EXPIRED: ChangeDetail.APP_EXPIRED,
    ApplicationState.RESUMING: ChangeDetail.APP_RESUMING,
}
