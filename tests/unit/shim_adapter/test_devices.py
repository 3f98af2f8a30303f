"""The devices of nodes, and which of them a claim gets: the cases of a node by itself."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.shim_adapter.backends.kubernetes.claim_objects import (
    ClaimToWrite,
    Result,
    claim_of,
    class_of,
    slice_of,
    taint_rule_of,
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
            found.pools.see_slice(f"{node}-{driver}", slice_on(node, driver, devices))
    return found


def take(found, node, wanted, key=KEY):
    """Give a claim its devices; return the names, None where there are none."""
    assert not wanted.wrong, wanted.wrong
    chosen = found.choose(node, [(key, wanted)])
    if chosen is None:
        return None
    found.reserve(key, chosen[key], frozenset(found.types_of(wanted)))
    return [(each.request, each.device[2]) for each in chosen[key]]


def reserve(found, *devices, key=("ns", "other")):
    found.reserve(key, tuple(Result("gpu", each) for each in devices), frozenset())


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
    reserve(found, ("gpu", "n1-gpu", "gpu-2"))
    match = [{"matchAttribute": "pci.io/root"}]
    wanted = claim(exactly("gpu"), exactly("nic", "nic"), constraints=match)
    assert often(found, "n1", wanted) == 1
    assert take(found, "n1", wanted) == [("gpu", "gpu-3"), ("nic", "nic-0")]
    assert often(found, "n1", wanted) == 1  # which is the one that it has
    assert found.choose("n1", [(("ns", "next"), wanted)]) is None


def test_all_devices_are_had_when_none_is_taken_and_by_administrators_always():  # D5
    found = cluster(n1={"gpu": [device(f"gpu-{at}") for at in range(8)]})
    reserve(found, ("gpu", "n1-gpu", "gpu-5"))
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


def test_all_devices_are_had_only_if_each_taint_of_them_is_tolerated():
    devices = [device("a", m="A100"), device("b", "NoSchedule", m="A100"), device("c", m="H200")]
    found = cluster(n1={"gpu": devices})
    every = claim(exactly("gpu", "a100", allocationMode="All"))
    assert (often(found, "n1", every), take(found, "n1", every)) == (0, None)
    others = claim(exactly("gpu", "h200", allocationMode="All"))
    assert take(found, "n1", others, ("ns", "others")) == [("gpu", "c")]
    tolerant = claim(
        exactly("gpu", "a100", allocationMode="All", tolerations=[{"operator": "Exists"}])
    )
    assert sorted(take(found, "n1", tolerant)) == [("gpu", "a"), ("gpu", "b")]


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
        (exactly("g", capacity={"requests": {}, "x": 1}), "exactly.capacity.x: not supported"),
        (exactly("g", capacity={"requests": {"m": "x"}}), "requests.m: a quantity, found 'x'"),
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
    found.pools.see_slice("a", slice_on("n", "gpu", four, resourceSliceCount=2))
    wanted = claim(exactly("gpu"))
    assert often(found, "n", wanted) == 0
    assert found.incomplete_for(wanted) == "pool n-gpu of gpu is incomplete (1 of 2 slices)"
    more = [device(f"gpu-{at}") for at in range(4, 8)]
    found.pools.see_slice("b", slice_on("n", "gpu", more, resourceSliceCount=2))
    assert (often(found, "n", wanted), found.incomplete_for(wanted)) == (8, "")
    found.pools.see_slice("c", slice_on("n", "gpu", four[:3], generation=2))
    assert often(found, "n", wanted) == 3
    found.pools.see_slice("c", None)
    assert often(found, "n", wanted) == 8


def halves():
    """Return the slices of one device that may be given whole or as two halves."""

    def part(name, of, amount):
        counters = {"memory": {"value": amount}}
        consumes = [{"counterSet": "gpu-0", "counters": counters}]
        return device(name, part=of) | {"consumesCounters": consumes}

    parts = [part("all", "whole", "1"), part("h0", "half", "500m"), part("h1", "half", "500m")]
    sets = [{"name": "gpu-0", "counters": {"memory": {"value": "1"}}}]
    pool = {"name": "n1-gpu", "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": "gpu", "nodeName": "n1", "pool": pool, "sharedCounters": sets}
    return slice_on("n1", "gpu", parts, resourceSliceCount=2), slice_of({"spec": spec})


def test_a_device_and_its_halves_are_given_as_far_as_their_counters_go():  # D12
    found = Devices()
    for name in ("whole", "half"):
        selector = {"cel": {"expression": f'device.attributes["gpu"].part == "{name}"'}}
        found.see_class(name, class_of({"spec": {"selectors": [selector]}}))
    found.see_class("gpu", class_of({"spec": {}}))
    for number, seen in enumerate(halves()):
        found.pools.see_slice(str(number), seen)
    either = claim({"name": "gpu", "firstAvailable": [
        {"name": "whole", "deviceClassName": "whole"}, {"name": "half", "deviceClassName": "half"},
    ]})  # fmt: skip
    assert often(found, "n1", either) == 2
    assert often(found, "n1", claim(exactly("gpu"))) == 2  # the smaller ones first
    both = found.choose("n1", [(("ns", "a"), either), (("ns", "b"), either)])
    assert sorted(each.device[2] for results in both.values() for each in results) == ["h0", "h1"]
    assert take(found, "n1", either) == [("gpu/whole", "all")]
    assert often(found, "n1", either) == 1  # which is the one that it has
    assert often(found, "n1", claim(exactly("gpu", "half"))) == 0
    found.give_back(KEY)
    assert take(found, "n1", claim(exactly("gpu", "half"))) == [("gpu", "h0")]
    assert often(found, "n1", claim(exactly("gpu", "whole"))) == 0
    assert take(found, "n1", either, ("ns", "b")) == [("gpu/half", "h1")]


def shared(**policy):
    """Return a cluster of one device of 80Gi that is shared."""
    memory = {"value": "80Gi", **({"requestPolicy": policy} if policy else {})}
    body = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": memory}}
    return cluster(n1={"gpu": [body]})


def asking(size=""):
    return claim(exactly("gpu", **({"capacity": {"requests": {"memory": size}}} if size else {})))


def test_a_share_is_rounded_up_and_all_of_them_are_no_more_than_there_is():  # D14
    steps = {"min": "10Gi", "max": "80Gi", "step": "10Gi"}
    found = shared(default="20Gi", validRange=steps)
    assert often(found, "n1", asking("15Gi")) == 4
    for at, size in enumerate(("15Gi", "")):
        assert take(found, "n1", asking(size), ("ns", str(at))) is not None
    assert often(found, "n1", asking("45Gi")) == 0
    assert take(found, "n1", asking("45Gi")) is None
    assert take(found, "n1", asking("40Gi"), ("ns", "fits")) is not None
    assert take(found, "n1", asking("1Gi")) is None


def test_what_a_share_takes_is_written_and_read_again():
    found = shared(validValues=["10Gi", "40Gi"])
    (results,) = found.choose("n1", [(KEY, asking("15Gi"))]).values()
    assert results[0].consumed == ((("gpu", "memory"), 40 * 2**30 * 1000),)
    written = ClaimToWrite(*KEY, "uid", "n1", results, (), {"uid": "p"}).allocation()
    (device_,) = written["devices"]["results"]
    assert device_["consumedCapacity"] == {"memory": str(40 * 2**30)}
    assert len(device_["shareID"]) == 36
    read = claim_of({"metadata": {"uid": "1"}, "spec": {}, "status": {"allocation": written}})
    found.see_claim(KEY, read)
    assert often(found, "n1", asking("40Gi")) == 1
    assert take(found, "n1", asking("41Gi")) is None
    assert take(shared(), "n1", asking()) is not None  # all of it
    whole = shared()
    assert (often(whole, "n1", asking()), often(whole, "n1", asking("20Gi"))) == (1, 4)


def test_a_device_that_is_not_shared_has_as_much_as_is_asked_for():
    body = {"name": "gpu-0", "capacity": {"memory": {"value": "24Gi"}}}
    found = cluster(n1={"gpu": [body]})
    assert (often(found, "n1", asking("24Gi")), often(found, "n1", asking("25Gi"))) == (1, 0)


def test_a_rule_gives_devices_a_taint_as_long_as_it_is_there():
    found = cluster(n1={"gpu": [device(f"gpu-{at}") for at in range(4)]})
    rule = {"deviceSelector": {"driver": "gpu", "pool": "n1-gpu", "device": "gpu-2"},
            "taint": {"key": "sick", "effect": "NoExecute"}}  # fmt: skip
    found.pools.see_taint("r", taint_rule_of({"spec": rule}))
    assert often(found, "n1", claim(exactly("gpu"))) == 3
    tolerant = claim(exactly("gpu", count=4, tolerations=[{"key": "sick", "operator": "Exists"}]))
    assert often(found, "n1", tolerant) == 1
    found.pools.see_taint("r", None)
    assert often(found, "n1", claim(exactly("gpu"))) == 4
    assert taint_rule_of({"spec": {"taint": {"key": "sick", "effect": "None"}}}) is None


def on_racks(**racks):
    """Return a cluster with a device for each rack, and its nodes."""
    found = Devices()
    found.see_class("slice", class_of({"spec": {}}))
    for name, nodes in racks.items():
        expression = {"key": "rack", "operator": "In", "values": [name]}
        selector = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "tpu", "pool": pool, "nodeSelector": selector}
        found.pools.see_slice(
            name, slice_of({"spec": {**spec, "devices": [{"name": f"slice-{name}"}]}})
        )
        for node in nodes:
            found.pools.see_node(node, {"rack": name})
    return found


def test_a_device_of_several_nodes_is_on_each_of_them_and_given_once():  # D7
    found = on_racks(a=["a1", "a2"], b=["b1"])
    wanted = claim(exactly("slice", "slice"))
    assert found.domains_of(wanted) == {"a1": "slice-a", "a2": "slice-a", "b1": "slice-b"}
    assert [often(found, node, wanted) for node in ("a1", "a2", "b1", "c")] == [1, 1, 1, 0]
    found.pools.changed.clear()
    (results,) = found.choose("a2", [(KEY, wanted)]).values()
    found.reserve(KEY, results, frozenset())
    assert sorted(found.pools.changed) == ["a1", "a2"]
    assert [often(found, node, wanted) for node in ("a1", "a2", "b1")] == [0, 0, 1]
    (term,) = found.pools.selector_of([each.device for each in results])["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["a"]
    found.pools.see_node("b1", {"rack": "a"})
    assert found.domains_of(wanted)["b1"] == "slice-a"
    found.pools.see_node("a1", None)
    assert "a1" not in found.domains_of(wanted)


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


@pytest.mark.parametrize("names", [("old", "new"), ("a", "b"), ("b", "a")])
def test_an_extended_resource_is_of_the_newest_class_that_offers_it(names):
    found = cluster(n1={"gpu": [device("a", m="A100")]}, n2={"gpu": [device("h", m="H200")]})
    for at, (name, kind) in enumerate(zip(names, ("A100", "H200"), strict=True)):
        expression = f'device.attributes["gpu"].m == "{kind}"'
        spec = {
            "selectors": [{"cel": {"expression": expression}}],
            "extendedResourceName": "x.y/gpu",
        }
        made = {"creationTimestamp": f"2026-11-28T08:00:0{at}Z"}
        found.see_class(name, class_of({"metadata": made, "spec": spec}))
        wanted = claim(exactly("gpu", name))
        assert often(found, "n2" if at else "n1", wanted) == 1
        assert found.classes.class_of("x.y/gpu") == name
    offered = [found.offered(node, {}) for node in ("n1", "n2")]
    assert [each.get("x.y/gpu", 0) for each in offered] == [0, 1]
    assert often(found, "n1", claim(exactly("gpu", names[0]))) == 1  # by its own name
    found.see_class(names[1], None)
    assert [found.offered(node, {}).get("x.y/gpu", 0) for node in ("n1", "n2")] == [1, 0]
