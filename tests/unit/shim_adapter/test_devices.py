"""The devices of nodes, and which of them a claim gets: the cases of a node by itself."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.shim_adapter.backends.kubernetes.claim_objects import (
    claim_of,
    class_of,
    slice_of,
)
from services.shim_adapter.backends.kubernetes.devices import Devices

KEY = "ns", "claim"


def slice_on(node, driver, devices, **pool):
    pool = {"name": f"{node}-{driver}", "generation": 1, "resourceSliceCount": 1, **pool}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    return slice_of({"spec": spec})


def device(name, taint="", **attributes):
    kinds = {str: "string", int: "int", bool: "bool"}
    found = {"name": name, "attributes": {k: {kinds[type(v)]: v} for k, v in attributes.items()}}
    return found | ({"taints": [{"key": "sick", "effect": taint}]} if taint else {})


def claim(*requests, constraints=()):
    devices = {"requests": list(requests), "constraints": list(constraints)}
    return claim_of({"metadata": {"uid": "1"}, "spec": {"devices": devices}})


def exactly(name, of="gpu", **more):
    return {"name": name, "exactly": {"deviceClassName": of, **more}}


def cluster(**nodes):
    """Return nodes, with the devices of each driver by name."""
    found = Devices()
    for name in ("gpu", "nic", "h200", "a100"):
        kind = {"h200": "H200", "a100": "A100"}.get(name)
        text = (
            f'device.driver == "{name}"'
            if kind is None
            else f'device.attributes["gpu"].m == "{kind}"'
        )
        found.see_class(name, class_of({"spec": {"selectors": [{"cel": {"expression": text}}]}}))
    for node, drivers in nodes.items():
        for driver, devices in drivers.items():
            found.see_slice(f"{node}-{driver}", slice_on(node, driver, devices))
    return found


def take(found, node, wanted, key=KEY):
    """Give a claim its devices; return the names, None where there are none."""
    assert not wanted.wrong, wanted.wrong
    chosen = found.choose(node, [(key, wanted)])
    if chosen is None:
        return None
    taken = tuple(device for _, device, is_admin in chosen[key] if not is_admin)
    found.reserve(key, taken, frozenset(found.types_of(wanted)))
    return [(request, device[2]) for request, device, _ in chosen[key]]


def often(found, node, wanted):
    """Return how many claims like one the core would place on a node."""
    for request in wanted.requests:
        found.count(request)
    found.count_joint(wanted)
    types = found.types_of(wanted)
    offered = found.offered(node, {})
    return min(offered.get(kind, 0) // count for kind, count in types.items())


def test_devices_of_two_requests_are_on_one_root():  # D4
    gpus = [device(f"gpu-{at}", root=at // 2) for at in range(4)]
    for each in gpus:
        each["attributes"]["pci.io/root"] = each["attributes"].pop("root")
    nics = [device("nic-0", **{"pci.io/root": 1}), device("nic-1", **{"pci.io/root": 2})]
    found = cluster(n1={"gpu": gpus, "nic": nics})
    found.reserve(("ns", "other"), (("gpu", "n1-gpu", "gpu-2"),), frozenset())
    match = [{"matchAttribute": "pci.io/root"}]
    wanted = claim(exactly("gpu"), exactly("nic", "nic"), constraints=match)
    assert often(found, "n1", wanted) == 1
    assert take(found, "n1", wanted) == [("gpu", "gpu-3"), ("nic", "nic-0")]
    assert often(found, "n1", wanted) == 1  # which is the one that it has
    assert found.choose("n1", [(("ns", "next"), wanted)]) is None


def test_all_devices_are_had_when_none_is_taken_and_by_administrators_always():  # D5
    found = cluster(n1={"gpu": [device(f"gpu-{at}") for at in range(8)]})
    found.reserve(("ns", "other"), (("gpu", "n1-gpu", "gpu-5"),), frozenset())
    every = claim(exactly("gpu", allocationMode="All"))
    assert (often(found, "n1", every), take(found, "n1", every)) == (0, None)
    admin = claim(exactly("gpu", allocationMode="All", adminAccess=True))
    assert often(found, "n1", admin) > 100
    assert len(take(found, "n1", admin, ("ns", "admin"))) == 8
    found.give_back(("ns", "other"))
    assert often(found, "n1", every) == 1
    assert len(take(found, "n1", every)) == 8


def test_the_first_alternative_that_a_node_has_is_taken():  # D11
    found = cluster(
        n1={"gpu": [device("a", m="A100")]},
        n2={"gpu": [device("a", m="A100"), device("b", m="A100")]},
        n3={"gpu": [device("h", m="H200")]},
    )
    first = [
        {"name": "h200", "deviceClassName": "h200", "count": 1},
        {"name": "a100", "deviceClassName": "a100", "count": 2},
    ]
    wanted = claim({"name": "gpu", "firstAvailable": first})
    assert [often(found, node, wanted) for node in ("n1", "n2", "n3")] == [0, 1, 1]
    assert found.ranked(wanted) == {1: ["n2"], 2: ["n3"]}
    assert take(found, "n3", wanted, ("ns", "x")) == [("gpu/h200", "h")]
    assert take(found, "n2", wanted) == [("gpu/a100", "a"), ("gpu/a100", "b")]


def test_a_device_with_a_taint_is_given_to_who_tolerates_it():  # D13
    devices = [device(f"gpu-{at}", "NoSchedule" if at == 2 else "") for at in range(4)]
    found = cluster(n1={"gpu": devices})
    plain = claim(exactly("gpu", count=4))
    assert (often(found, "n1", plain), take(found, "n1", plain)) == (0, None)
    tolerant = claim(exactly("gpu", count=4, tolerations=[{"operator": "Exists"}]))
    assert often(found, "n1", tolerant) == 1
    assert len(take(found, "n1", tolerant)) == 4


def test_like_claims_with_constraints_are_counted_as_often_as_they_fit():
    gpus = [device(f"gpu-{at}", island=at // 4) for at in range(8)]
    found = cluster(n1={"gpu": gpus})
    pair = claim(exactly("gpu", count=2), constraints=[{"matchAttribute": "gpu/island"}])
    assert often(found, "n1", pair) == 4
    four = claim(exactly("gpu", count=4), constraints=[{"matchAttribute": "gpu/island"}])
    assert take(found, "n1", pair) is not None
    assert often(found, "n1", four) == 1
    assert {name for _, name in take(found, "n1", four, ("ns", "four"))} == {
        f"gpu-{at}" for at in range(4, 8)
    }


def test_distinct_devices_differ_in_an_attribute_that_each_has():
    found = cluster(
        n1={"gpu": [device("a", at=1), device("b", at=1), device("c", at=2), device("d")]}
    )
    apart = [{"distinctAttribute": "gpu/at", "requests": ["gpu"]}]
    assert take(found, "n1", claim(exactly("gpu", count=2), constraints=apart)) == [
        ("gpu", "a"), ("gpu", "c"),
    ]  # fmt: skip
    assert take(found, "n1", claim(exactly("gpu", count=3), constraints=apart)) is None


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (exactly("g", capacity={"requests": {}, "x": 1}), "exactly.capacity: not supported"),
        (exactly("g", allocationMode="Some"), "allocationMode: Some is not supported"),
        (exactly("g", count=33), "exactly.count: 1 to 32, found 33"),
        (exactly("g", selectors=[{"cel": {"expression": "device.x.map(y, y)"}}]), "macro 'map'"),
    ],
)
def test_what_is_not_supported_is_said_by_its_field(request_, said):
    assert said in claim(request_).wrong


def test_a_pool_counts_once_all_slices_of_its_newest_generation_are_there():  # D1, D2
    found = Devices()
    found.see_class("gpu", class_of({"spec": {}}))
    four = [device(f"gpu-{at}") for at in range(4)]
    found.see_slice("a", slice_on("n", "gpu", four, resourceSliceCount=2))
    wanted = claim(exactly("gpu"))
    assert often(found, "n", wanted) == 0
    assert found.incomplete_for(wanted) == "pool n-gpu of gpu is incomplete (1 of 2 slices)"
    more = [device(f"gpu-{at}") for at in range(4, 8)]
    found.see_slice("b", slice_on("n", "gpu", more, resourceSliceCount=2))
    assert (often(found, "n", wanted), found.incomplete_for(wanted)) == (8, "")
    found.see_slice("c", slice_on("n", "gpu", four[:3], generation=2))
    assert often(found, "n", wanted) == 3
    found.see_slice("c", None)
    assert often(found, "n", wanted) == 8


def _is_possible(devices, requests, match):
    """Return whether there are devices, by trying all that there are."""
    if not requests:
        return True
    want, count = requests[0]
    for chosen in combinations([each for each in devices if each[1] >= want], count):
        if match and len({root for _, _, root in chosen}) > 1:
            continue
        left = [each for each in devices if each not in chosen]
        if match:
            left = [each for each in left if each[2] == chosen[0][2]]
        if _is_possible(left, requests[1:], match):
            return True
    return False


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=3),
    st.booleans(),
)
def test_devices_are_found_where_there_are_any(devices, requests, match):
    there = [(at, size, root) for at, (size, root) in enumerate(devices)]
    found = cluster(
        n1={"gpu": [device(f"g{at}", size=size, root=root) for at, size, root in there]}
    )
    asked = [
        exactly(f"r{at}", count=count,
                selectors=[{"cel": {"expression": f'device.attributes["gpu"].size >= {want}'}}])
        for at, (want, count) in enumerate(requests)
    ]  # fmt: skip
    constraints = [{"matchAttribute": "gpu/root"}] if match else []
    wanted = claim(*asked, constraints=constraints)
    assert (take(found, "n1", wanted) is not None) is _is_possible(there, requests, match)
    found.give_back(KEY)
    assert (often(found, "n1", wanted) > 0) is _is_possible(there, requests, match)
