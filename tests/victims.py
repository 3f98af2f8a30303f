"""Whom the laws of preemption allow an ask to take, one by one: the search itself reads kinds."""

from services.core.scheduler.policies.preemption_victims import eligible


def eligible_keys(partition, ask):
    """Return the keys of every allocation that the laws allow an ask to take, node by node."""
    partition.victims.start(partition.applications.values())
    leaf = partition.applications[ask.request.application_id].queue
    kinds = set(eligible(partition, leaf, ask).kinds)
    return [
        victim.key
        for node in partition.nodes.nodes.values()
        for victim in partition.victims.on(node).order
        if victim.kind in kinds
    ]
