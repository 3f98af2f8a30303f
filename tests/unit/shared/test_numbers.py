"""Numbers in the properties of queues.yaml, read as Go reads them; the rest is the default."""

import pytest

from services.core.scheduler.model.queue_settings import QueueSettings, settings_of
from shared.model.duration import parse_go_duration
from shared.model.numbers import parse_int32, parse_uint64
from shared.queueconfig import QueueConfigError, load_configuration
from shared.queueconfig.warnings import warnings_of
from tests.builders import Core, config_of
from tests.table import each_row

NO_NUMBERS = [
    "",
    " ",
    "+",
    "-",
    "+-5",
    "--5",
    " 5",
    "5 ",
    "5.0",
    "5e3",
    "0x5",
    "1_000",
    "\u0665",
    "five",
]


@each_row(
    ("text", "value"),
    [
        ("12", 12),
        ("00000000000000012", 12),
        ("-00000000000000012", -12),
        ("0" * 5_000 + "7", 7),
        ("+5", 5),
        ("-0", 0),
        ("2147483647", 2**31 - 1),
        ("2147483648", None),
        ("-2147483648", -(2**31)),
        ("-2147483649", None),
        ("9" * 5_000, None),
        *((text, None) for text in NO_NUMBERS),
    ],
)
def test_an_int32_is_read_as_go_s_parse_int_does(text, value):
    assert parse_int32(text) == value
    assert settings_of({"priority.offset": text}).priority_offset == (value or 0)


@each_row(
    ("text", "value"),
    [
        ("3", 3),
        ("0000000000000000000000000000003", 3),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", None),
        ("+3", None),
        ("-3", None),
        ("9" * 5_000, None),
        *((text, None) for text in NO_NUMBERS),
    ],
)
def test_a_uint64_is_read_as_go_s_parse_uint_does(text, value):
    assert parse_uint64(text) == value
    assert settings_of({"application.unschedasks.backoff": text}).backoff_asks == (value or 0)


@each_row(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("-0s", 0),
        ("+10s", 10_000_000_000),
        ("0000000000010s", 10_000_000_000),
        ("0" * 100 + "10s", 10_000_000_000),
        (".5s", 500_000_000),
        ("1.s", 1_000_000_000),
        ("1h2m3s4ms5us6ns", 3_723_004_005_006),
        ("7µs", 7_000),  # the micro sign
        ("7μs", 7_000),  # the Greek letter
        ("0.1000000000000000000000000000001s", 100_000_000),
        ("2562047h47m16.854775807s", 2**63 - 1),
        ("2562047h47m16.854775808s", None),
        ("9" * 900 + "s", None),
        ("1" * 5_000 + "s", None),
        ("-10s", None),
        ("+-10s", None),
        ("10", None),
        ("10 s", None),
        ("s", None),
        (".s", None),
        ("1sm", None),
        ("1S", None),
        ("\u0663s", None),
    ],
)
def test_a_duration_is_read_as_go_s_parse_duration_does(text, nanoseconds):
    assert parse_go_duration(text) == nanoseconds


@each_row("text", ["", "0", "0s", "-5s", "30", "soon"])
def test_a_delay_that_is_not_above_zero_is_the_default(text):
    names = (
        "application.unschedasks.backoff.delay",
        "preemption.delay",
        "quota.preemption.delay",
    )
    assert settings_of(dict.fromkeys(names, text)) == QueueSettings()


def test_a_number_of_any_length_brings_nothing_down():
    huge = "9" * 5_000
    leaf = "{name: a, properties: {priority.offset: '%s', application.unschedasks.backoff: '%s'}}"
    assert warnings_of(load_configuration(config_of(leaf % (huge, huge)))) == []
    assert Core(config_of(leaf % (huge, huge))).partition.config_error == ""
    with pytest.raises(QueueConfigError, match="into uint64"):
        load_configuration(config_of("{name: a, maxapplications: %s}" % huge))
    weights = "nodesortpolicy: {resourceweights: {vcore: nan}}"
    with pytest.raises(QueueConfigError, match="into float64"):
        load_configuration("partitions: [{name: default, queues: [{name: root}], %s}]" % weights)
