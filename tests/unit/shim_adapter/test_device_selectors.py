"""Selectors of devices: what drivers write has the answer that CEL gives, or is refused by name."""

import pytest

from services.shim_adapter.translation.device_selectors import (
    MAX_DEPTH,
    Device,
    SelectorError,
    SelectorUnsupportedError,
    amount,
    selects,
    version,
)

GPU = "gpu.nvidia.com"
DEVICE = Device(
    GPU,
    {
        (GPU, "productName"): "NVIDIA A100-SXM4-40GB",
        (GPU, "type"): "gpu",
        (GPU, "index"): 3,
        (GPU, "driverVersion"): version("550.54.14"),
        (GPU, "cudaComputeCapability"): version("8.0.0"),
        ("resource.kubernetes.io", "pcieRoot"): "pci0000:07",
        ("dra.net", "rdma"): True,
        ("dra.net", "ifName"): "gpu3rdma0",
    },
    {(GPU, "memory"): amount("40Gi")},
)
A = f'device.attributes["{GPU}"]'
NET = 'device.attributes["dra.net"]'
MEMORY = f'device.capacity["{GPU}"].memory'


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (f'device.driver == "{GPU}"', True),
        ("device.driver == 'gpu.intel.com'", False),
        (f'device.driver == "{GPU}" && {A}.type == "gpu"', True),
        (f'{A}.type != "mig"', True),
        (f'{A}.productName.lowerAscii().matches("^.*a100.*$")', True),
        (f'{A}.productName.startsWith("NVIDIA") && {A}.productName.endsWith("40GB")', True),
        (f'{A}.productName.contains("H100")', False),
        (f'{MEMORY}.compareTo(quantity("40Gi")) >= 0', True),
        (f'{MEMORY}.isGreaterThan(quantity("40Gi"))', False),
        (f'{MEMORY}.isLessThan(quantity("80Gi"))', True),
        (f'{A}.driverVersion.compareTo(semver("550.0.0")) >= 0', True),
        (f'{A}.cudaComputeCapability.isLessThan(semver("9.0.0"))', True),
        ('semver("1.0.0-rc.1").compareTo(semver("1.0.0")) < 0', True),
        (f"{A}.index < 4 || {A}.index > 8", True),
        (f"{A}.index in [1, 2, 3]", True),
        (f"!({A}.index <= 2)", True),
        (f"{NET}.rdma", True),
        (f"{NET}.rdma == true && !false", True),
        (f"has({NET}.rdma)", True),
        (f"has({NET}.missing)", False),
        (f"{NET}.?missing.orValue(7) == 7", True),
        (f"has({NET}.missing) && {NET}.missing", False),
        (f"{NET}.missing || {NET}.rdma", True),
        (f'"{GPU}" in device.attributes', True),
        (f'"index" in {A}', True),
        (f"int({NET}.ifName.substring(3, 4)) == {A}.index", True),
        (f"cel.bind(a, {A}, a.index == 3 && a.type == 'gpu')", True),
        (f"{A}.index == -3", False),
        (f'{A}.index == "3"', False),
        (f'{A}["index"] == 3', True),
        ("!" * 1_901 + "true", False),
        ("!" * 1_900 + "true", True),
    ],
)
def test_an_expression_has_the_answer_of_cel(expression, wanted):
    assert selects(expression, DEVICE) is wanted


@pytest.mark.parametrize(
    "expression",
    [
        f"{NET}.missing",
        f"{NET}.missing && {NET}.rdma",
        f"{A}.type < 3",
        f"{A}.index",
        f'{A}.index.startsWith("3")',
        'quantity("a lot").isLessThan(quantity("1"))',
        f"{A}.productName.substring(3, 400) == ''",
        "device.other",
    ],
)
def test_what_has_no_answer_is_an_error_and_not_no(expression):
    with pytest.raises(SelectorError):
        selects(expression, DEVICE)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("device.attributes.all(k, k != '')", "macro 'all'"),
        (f"{A}.map(x, x)", "macro 'map'"),
        ("1 + 1 == 2", "'+ 1 == 2'"),
        ("true ? false : true", "'? false : true'"),
        ("1.5 < 2", "'1.5 < 2'"),
        ("size([1]) == 1", "the function 'size'"),
        ("'a'.charAt(0) == 'a'", "the function 'charAt'"),
        ("other == 1", "the name 'other'"),
        ("device.driver.matches('(a+)+b')", "the pattern '(a+)+b'"),
        ("device.driver.matches(device.driver)", "matches: a text as it stands"),
        ("(true", "')' was expected"),
        ("true true", "'true' is not supported here"),
        ("{'a': 1} == {}", "is not supported"),
        ("(" * (MAX_DEPTH + 1) + "true" + ")" * (MAX_DEPTH + 1), "brackets in one another"),
        ("!" * 3_000 + "true", "more than 2000 tokens"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(expression, words):
    with pytest.raises(SelectorUnsupportedError, match=words.replace("(", r"\(").replace(
        ")", r"\)").replace("+", r"\+").replace("?", r"\?").replace(".", r"\.")):  # fmt: skip
        selects(expression, DEVICE)
