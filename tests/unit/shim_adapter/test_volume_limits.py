"""How many volumes of a pod are looked at together."""

import pytest

from services.shim_adapter.backends.kubernetes import volumes
from services.shim_adapter.backends.kubernetes.volumes import Claim, Volume, Volumes
from shared.messages.constraints import NodeTerm, Requirement


def judged(count, keys):
    """Return what a pod's claims come to, each of a volume that wants one of ``keys`` labels."""
    known, names = Volumes(), [f"c{at}" for at in range(count)]
    for at, name in enumerate(names):
        term = NodeTerm((Requirement(f"key-{at % keys}", "In", ("x",)),))
        known.see_volume(f"v-{name}", Volume((term,)))
        known.see_claim(("ns", name), Claim(f"v-{name}", ""))
    return known.judge("ns", tuple(names))


@pytest.mark.parametrize(("count", "keys", "is_too_much"), [(200, 200, False), (201, 201, True),
                                                            (1_000, 3, False)])  # fmt: skip
def test_a_pod_waits_whose_volumes_set_too_many_conditions_and_is_told_so(count, keys, is_too_much):
    found = judged(count, keys)
    if is_too_much:
        assert found.waits == (
            "its 201 volumes set more than 200 conditions on a node, too many to look at: "
            "give it fewer volumes"
        )
    else:
        (term,) = found.terms
        assert (found.waits, len(term.expressions)) == ("", keys)


def test_what_its_volumes_cost_grows_with_their_number_and_no_faster(monkeypatch):
    looked, both = [], volumes.both
    monkeypatch.setattr(
        volumes, "both", lambda left, right: looked.append(len(left)) or both(left, right)
    )
    assert judged(5_000, 5_000).waits
    assert len(looked) == volumes.MAX_REQUIREMENTS + 1
