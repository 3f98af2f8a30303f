"""The routes of dead letters: list, show, replay, drop.

Rule 1: a letter is replayed by the service that dead-lettered it (``ReplayDeadLetters``): the API
        may not send other services' messages, and need not, because the letter is in the service's
        own queue.
Rule 2: messages of an inbox that ended with its reader, such as a replica's, are not replayed: the
        next reader got a snapshot.
Rule 3: a request for an identity selects all letters that have it.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from services.api.access.audit import note
from services.api.replica import Replica
from services.api.web.answers import AnswerError, answer
from services.api.web.segments import NamedRoute
from shared.bus.base import MAX_SEARCHED, DeadLetter, DeadLetters, Wanted
from shared.bus.dead_letters import MAX_SHOWN_BYTES
from shared.bus.errors import BusClosedError, BusUnavailableError
from shared.messages.dead_letters import DeadLettersReplayed, ReplayDeadLetters
from shared.messages.envelope import Address
from shared.runtime.replaying import MAX_REPLAYED, MAX_REPLAYED_BYTES

MAX_LETTERS = 100
_REASON = Annotated[str, Query(max_length=1_000, description="A part of the reason")]
_SOME_REASON = Annotated[
    str, Query(min_length=1, max_length=1_000, description="A part of the reason")
]
_FOR_GOOD = "its inbox ended with its reader, and the next reader got a full snapshot: drop it"
Result = dict[str, Any]


def dead_letter_routes(replica: Replica) -> APIRouter:
    """Return the routes of a replica."""
    router = APIRouter(route_class=NamedRoute, prefix="/v1/dead-letters", tags=["Muster"])

    @router.get("", summary="Dead-lettered messages with their reasons, oldest first")
    async def dead_letters(request: Request, reason: _REASON = "") -> Response:
        found = await _found(replica, Wanted(reason=reason), MAX_LETTERS)
        letters = [_row(letter) for letter in found.letters]
        return answer(request, {"deadLetters": letters, "total": found.total})

    @router.get("/{letter}", summary="One dead letter, with the beginning of its body")
    async def show(request: Request, letter: str) -> Response:
        first, *_ = await _of(replica, _one(letter))
        note(request, "dead letter", [letter])
        body = first.body[:MAX_SHOWN_BYTES]
        text = body.decode(errors="backslashreplace")
        return answer(request, {**_row(first), "body": text, "isWhole": first.size == len(body)})

    @router.post("/{letter}/replay", summary="Replay it to its service")
    async def replay(request: Request, letter: str) -> Response:
        return await _replayed(replica, request, _one(letter))

    @router.post("", summary="Replay the dead letters with a given reason")
    async def replay_all(request: Request, reason: _SOME_REASON) -> Response:
        return await _replayed(replica, request, Wanted(reason=reason))

    @router.delete("/{letter}", summary="Forget it for good")
    async def drop(request: Request, letter: str) -> Response:
        return await _dropped(replica, request, _one(letter))

    @router.delete("", summary="Forget those with a reason for good")
    async def drop_all(request: Request, reason: _SOME_REASON) -> Response:
        return await _dropped(replica, request, Wanted(reason=reason))

    return router


def _one(letter: str) -> Wanted:
    return Wanted(frozenset([letter]))


async def _replayed(replica: Replica, request: Request, wanted: Wanted) -> Response:
    letters = await _of(replica, wanted)
    note(request, "replay of dead letters", [letter.message_id for letter in letters])
    done: list[str] = []
    refused: list[dict[str, str]] = []
    for inbox, ids in _requests(letters):
        if not Address(*inbox.split(".", 1)).is_durable:
            refused += [{"messageID": one, "reason": _FOR_GOOD} for one in ids]
            continue
        result = await replica.ask(ReplayDeadLetters(inbox, tuple(ids)), request)
        assert isinstance(result, DeadLettersReplayed)
        done += result.replayed
        refused += [{"messageID": i.message_id, "reason": i.reason} for i in result.refused]
    return answer(request, {"replayed": done, "refused": refused}, 200 if done else 409)


async def _dropped(replica: Replica, request: Request, wanted: Wanted) -> Response:
    try:
        names = await replica.host.drop_letters(wanted)
    except (BusUnavailableError, BusClosedError) as error:
        raise AnswerError(503, str(error)) from error
    if not names:
        raise _not_there(wanted)
    note(request, "drop of dead letters", names)
    return answer(request, {"dropped": names})


async def _found(replica: Replica, wanted: Wanted, most: int) -> DeadLetters:
    try:
        return await replica.host.dead_letters(most, wanted)
    except (BusUnavailableError, BusClosedError) as error:
        raise AnswerError(503, str(error)) from error


async def _of(replica: Replica, wanted: Wanted) -> tuple[DeadLetter, ...]:
    """Return the selected letters, at least one. Raises AnswerError 404."""
    found = await _found(replica, wanted, MAX_SEARCHED)
    if not found.letters:
        raise _not_there(wanted)
    return found.letters


def _not_there(wanted: Wanted) -> AnswerError:
    named = ", ".join(wanted.ids or ()) or f"with {wanted.reason!a} in its reason"
    return AnswerError(404, f"no dead letter {named} among the oldest {MAX_SEARCHED} of a service")


def _requests(letters: tuple[DeadLetter, ...]) -> Iterator[tuple[str, list[str]]]:
    """Yield the letters to replay of each inbox, split to the limits of a request, in order."""
    by_inbox: dict[str, dict[str, int]] = {}
    for letter in letters:
        sizes = by_inbox.setdefault(letter.inbox, {})
        sizes[letter.message_id] = sizes.get(letter.message_id, 0) + letter.size
    for inbox, sizes in by_inbox.items():
        ids: list[str] = []
        size = 0
        for name, length in sizes.items():
            size += length
            if ids and (len(ids) == MAX_REPLAYED or size > MAX_REPLAYED_BYTES):
                yield inbox, ids
                ids, size = [], length
            ids.append(name)
        yield inbox, ids


def _row(letter: DeadLetter) -> Result:
    return {
        "inbox": letter.inbox,
        "kind": letter.kind,
        "messageID": letter.message_id,
        "reason": letter.reason,
        "bytes": letter.size,
    }
