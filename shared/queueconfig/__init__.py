"""queues.yaml as YuniKorn's users write it: read strictly, judged by YuniKorn's own rules.

Pure: text in, a configuration or an error with a line out. Source: docs/rules/queues.md.
"""

from shared.queueconfig.errors import QueueConfigError
from shared.queueconfig.reader import read_configuration
from shared.queueconfig.schema import SchedulerConfig
from shared.queueconfig.validator import check_schedulable, validate

__all__ = ["QueueConfigError", "SchedulerConfig", "load_configuration", "load_schedulable"]


def load_configuration(text: str) -> SchedulerConfig:
    """Return the validated configuration in a text. Raises QueueConfigError."""
    config = read_configuration(text)
    validate(config)
    return config


def load_schedulable(text: str) -> SchedulerConfig:
    """Return the configuration in a text that can be put to work as a whole.

    Raises QueueConfigError, as a file's validation does or what judges it as a whole.
    """
    config = load_configuration(text)
    check_schedulable(config)
    return config
