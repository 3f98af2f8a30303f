"""Parses amounts of queues, and compares them along the tree (docs/rules/queues.md#checks)."""

from collections.abc import Mapping

from shared.model.quantity import QuantityError, parse_config_quantity
from shared.model.resources import Resource, add_into, fits_limit, go_map, is_zero, smaller_of
from shared.queueconfig.errors import QueueConfigError
from shared.queueconfig.schema import QueueSpec


def resource_of(amounts: Mapping[str, str], line: int) -> Resource:
    """Parse a resource. Raises QueueConfigError with YuniKorn's text."""
    result: Resource = {}
    for name, text in amounts.items():
        try:
            result[name] = parse_config_quantity(name, text)
        except QuantityError as error:
            raise QueueConfigError(str(error), line) from error
    return result


def check_resources(queue: QueueSpec, above: Resource) -> Resource:
    """Check a queue and its children; return its guaranteed resource. Raises QueueConfigError."""
    spec = queue.resources
    guaranteed = resource_of(spec.guaranteed or {}, spec.line)
    limit = resource_of(spec.max or {}, spec.line)
    if not fits_limit(limit, guaranteed):
        raise QueueConfigError(
            f"guaranteed resource {go_map(guaranteed)} is larger than maximum resource "
            f"{go_map(limit)} for queue {queue.name}",
            spec.line,
        )
    if not fits_limit(above, limit):
        raise QueueConfigError(
            f"max resource of parent {go_map(above)} is smaller than maximum resource "
            f"{go_map(limit)} for queue {queue.name}",
            spec.line,
        )
    effective = smaller_of(limit, above)
    children: Resource = {}
    for child in queue.queues or []:
        add_into(children, check_resources(child, effective))
    if not fits_limit(guaranteed, children):
        raise QueueConfigError(
            f"guaranteed resource of parent {go_map(guaranteed)} is smaller than sum of guaranteed "
            f"resources {go_map(children)} of the children for queue {queue.name}",
            queue.line,
        )
    if not fits_limit(effective, children):
        raise QueueConfigError(
            f"max resource {go_map(effective)} is smaller than sum of guaranteed resources "
            f"{go_map(children)} of the children for queue {queue.name}",
            queue.line,
        )
    return children if is_zero(guaranteed) else guaranteed


def check_templates_loadable(queue: QueueSpec) -> None:
    """Check the amounts of templates in the tree. Raises QueueConfigError."""
    template = queue.childtemplate.resources
    for amounts in (template.guaranteed, template.max):
        resource_of(amounts or {}, template.line)
    for child in queue.queues or []:
        check_templates_loadable(child)


def check_applications(queue: QueueSpec) -> None:
    """Check maxapplications in the tree. Raises QueueConfigError."""
    for child in queue.queues or []:
        if queue.maxapplications:
            if child.maxapplications > queue.maxapplications:
                raise QueueConfigError(
                    "parent maxApplications must be larger than child maxApplications", child.line
                )
            if not child.maxapplications:
                raise QueueConfigError(
                    "maxApplications is either undefined or zero, which is not allowed when "
                    "parent queue's maxApplications is defined",
                    child.line,
                )
        check_applications(child)
