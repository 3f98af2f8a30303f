"""The identity of an answer: the same when its cause comes again, another in another epoch."""

from shared.messages.commands import DeleteApplication
from shared.messages.envelope import CORE, SHIM_ADAPTER, Envelope, Outgoing, envelope_of
from shared.messages.protocol import SyncBegin

CAUSE = Envelope("m1", "DeleteApplication", DeleteApplication("a"), SHIM_ADAPTER, "api")


def identity(epoch: int) -> str:
    said = Outgoing(CORE, SyncBegin(""), epoch=epoch)
    return envelope_of(said, cause=CAUSE, index=0, source="shim_adapter", now_ns=1).message_id


def test_an_answer_to_what_comes_again_is_the_same_message():
    assert identity(2) == identity(2)


def test_an_answer_in_another_epoch_is_another_message():
    """A shim adapter that died after its answer begins an epoch with the cause that comes again."""
    assert identity(2) != identity(3)
