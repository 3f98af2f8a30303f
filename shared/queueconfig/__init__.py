"""queues.yaml as YuniKorn's users write it: read strictly, judged by YuniKorn's own rules.

Pure: text in, a configuration or an error with a line out. Source: contract sections 1.2 to 1.9.
"""

from shared.queueconfig.errors import QueueConfigError
from shared.queueconfig.reader import read_configuration
from shared.queueconfig.schema import SchedulerConfig
from shared.queueconfig.validator import check_schedulable, validate

__all__ = ["QueueConfigError", "SchedulerConfig", "load_configuration", "load_schedulable"]


def load_configuration(text: str, *, more_scores: bool = False) -> SchedulerConfig:
    """Return the validated configuration in a text. Raises QueueConfigError.

    ``more_scores``: it may name node scores that YuniKorn does not know, and would refuse.
    """
    config = read_configuration(text)
    validate(config, more_scores=more_scores)
    return config


def load_schedulable(text: str) -> SchedulerConfig:
    """Return the configuration in a text that can be put to work as a whole.

    It may name node scores that are not YuniKorn's: whether they may be used is the core's to say.
    Raises QueueConfigError, as a file's validation does or what judges it as a whole.
    """
    config = load_configuration(text, more_scores=True)
    check_schedulable(config)
    return config
