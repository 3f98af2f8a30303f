"""Carries out a submission once, even if its sender repeats it because the answer was lost.

Rule 1: manifests with a key that was answered get the same answer, and nothing is created.
Rule 2: the same key with other manifests is refused.
Rule 3: answers are saved together with the created objects, in one transaction.

Limits: as for all answers (``mirror.kept``); the oldest are dropped.
"""

from dataclasses import dataclass, replace
from hashlib import sha256

from services.shim_adapter.mirror.world import World
from services.shim_adapter.records import Answer
from shared.messages.commands import (
    DeleteManifests,
    RefusedDocument,
    SubmitManifests,
    SubmitResult,
)

USED = "this Idempotency-Key was used for other manifests: take a new one"


@dataclass(frozen=True, slots=True)
class Repeatable:
    """The identity of manifests with an idempotency key; name "" if they have none."""

    name: str
    checksum: str

    def answered(self, world: World) -> SubmitResult | None:
        """Return the answer to a repetition, or None if there was none yet."""
        known = world.answers.by_message.get(self.name) if self.name else None
        if known is None or known.submitted is None:
            return None
        if known.checksum == self.checksum:
            return known.submitted
        return SubmitResult(refused=(RefusedDocument("", 0, "", USED),))

    def remember(self, world: World, message_id: str, answer: Answer) -> None:
        """Retain the answer, by its key or else by its message."""
        world.answers.remember(self.name or message_id, replace(answer, checksum=self.checksum))


def repeatable(wanted: SubmitManifests | DeleteManifests) -> Repeatable:
    """Return the identity of manifests, by which a repetition is detected."""
    if not wanted.idempotency_key:
        return Repeatable("", "")
    checksum = sha256()
    for document in wanted.documents:
        checksum.update(f"{len(document.body)} {document.body}".encode())
    key = sha256(wanted.idempotency_key.encode()).hexdigest()  # however long it is
    return Repeatable(f"{type(wanted).__name__}/{key}", checksum.hexdigest())
