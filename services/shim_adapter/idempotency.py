"""A submission that its sender repeats, for it did not hear the answer, is carried out once.

Rule 1: manifests with a key that was answered get that answer again, and nothing is made.
Rule 2: the same key with other manifests is refused: the key is of the first.
Rule 3: what is remembered is saved with what was made, in one transaction.

Limits: as for all answers (``mirror.world``), the oldest go first.
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
    """Manifests with a key ("": each time is the first)."""

    name: str
    checksum: str

    def answered(self, world: World) -> SubmitResult | None:
        """Return what is answered without doing anything, or None for the first time."""
        known = world.answers.by_message.get(self.name) if self.name else None
        if known is None or known.submitted is None:
            return None
        if known.checksum == self.checksum:
            return known.submitted
        return SubmitResult(refused=(RefusedDocument("", 0, "", USED),))

    def remember(self, world: World, message_id: str, answer: Answer) -> None:
        """Keep the answer: by its key, or by its message where it has none."""
        world.answers.remember(self.name or message_id, replace(answer, checksum=self.checksum))


def repeatable(wanted: SubmitManifests | DeleteManifests) -> Repeatable:
    """Return the identity of manifests, by which a repetition is known."""
    if not wanted.idempotency_key:
        return Repeatable("", "")
    checksum = sha256()
    for document in wanted.documents:
        checksum.update(f"{len(document.body)} {document.body}".encode())
    key = sha256(wanted.idempotency_key.encode()).hexdigest()  # however long it is
    return Repeatable(f"{type(wanted).__name__}/{key}", checksum.hexdigest())
