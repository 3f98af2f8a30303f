"""Reads queues.yaml strictly and validates it by YuniKorn's rules.

Pure: the input is a text, the result a configuration or an error with a line. Source:
docs/rules/queues.md.
"""

from shared.queueconfig.errors import QueueConfigError
from shared.queueconfig.reader import read_configuration
from shared.queueconfig.schema import SchedulerConfig
from shared.queueconfig.validator import check_schedulable, validate

__all__ = ["QueueConfigError", "SchedulerConfig", "load_configuration", "load_schedulable"]


def load_configuration(text: str) -> SchedulerConfig:
    """Read and validate a configuration. Raises QueueConfigError."""
    config = read_configuration(text)
    validate(config)
    return config


def load_schedulable(text: str) -> SchedulerConfig:
    """Read a configuration and check that it can be used as a whole.

    Raises QueueConfigError of the file's validation, or of the checks that YuniKorn makes on
    loading.
    """
    config = load_configuration(text)
    check_schedulable(config)
    return config
