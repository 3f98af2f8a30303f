"""Messages that replay a service's dead letters."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplayDeadLetters:
    """Handle messages that were dead-lettered at an inbox, such as ``core.default``, by identity.

    Sent to the inbox's own service, because no other service may send such messages again.
    """

    inbox: str
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedLetter:
    """A message that stays dead-lettered, and why."""

    message_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class DeadLettersReplayed:
    """The answer to ReplayDeadLetters: what was handled, and what was not."""

    replayed: tuple[str, ...] = ()
    refused: tuple[RefusedLetter, ...] = ()
