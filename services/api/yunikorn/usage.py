"""YuniKorn's answers about users, groups and placement rules (docs/rules/rest.md#usage-and-rules).

The user and queue of an application are read from the applications: a user's state does not contain
them, because it would then repeat all of them with each pod.
"""

from collections.abc import Iterable, Sequence

from services.api.projection.model import ApplicationView, Model, UserView
from services.api.yunikorn.answers import Answer, by_name, pruned
from shared.messages.state import PlacementRuleState, RuleState, UsageState
from shared.model.names import ROOT


def rules_info(model: Model) -> list[Answer]:
    """Return the placement rules, the recovery rule last."""
    rules = model.partition.placement_rules if model.partition is not None else ()
    return [_rule_info(rule) for rule in rules]


def _rule_info(rule: PlacementRuleState) -> Answer:
    answer: Answer = {}
    for link in reversed(rule.links):
        above = {"parentRule": answer} if answer else {}
        answer = {**_link_info(link), **above}
    return answer


def _link_info(link: RuleState) -> Answer:
    answer: Answer = {"name": link.name, "parameters": by_name(link.parameters)}
    if link.filter_type:
        answer["filter"] = pruned(
            {
                "type": link.filter_type,
                "userList": list(link.users),
                "groupList": list(link.groups),
                "userExp": link.user_pattern,
                "groupExp": link.group_pattern,
            },
            always=("type",),
        )
    return answer


def users_info(model: Model, users: Iterable[UserView]) -> list[Answer]:
    """Return UserResourceUsageDAOInfo of each."""
    owned = _owned((view.summary.user, view) for view in model.applications.values())
    return [_user_info(user, owned.get(user.name, ())) for user in users]


def _user_info(user: UserView, owned: Sequence[ApplicationView]) -> Answer:
    groups = {v.summary.application_id: v.summary.group for v in owned if v.summary.group}
    return pruned(
        {"userName": user.name, "groups": by_name(groups), "queues": _usage_tree(user, owned)},
        always=("userName", "queues"),
    )


def groups_info(model: Model, groups: Iterable[UserView]) -> list[Answer]:
    """Return GroupResourceUsageDAOInfo of each."""
    owned = _owned((view.summary.group, view) for view in model.applications.values())
    return [_group_info(group, owned.get(group.name, ())) for group in groups]


def _group_info(group: UserView, owned: Sequence[ApplicationView]) -> Answer:
    return pruned(
        {
            "groupName": group.name,
            "applications": [view.summary.application_id for view in owned],
            "queues": _usage_tree(group, owned),
        },
        always=("groupName", "queues"),
    )


def _owned(views: Iterable[tuple[str, ApplicationView]]) -> dict[str, list[ApplicationView]]:
    found: dict[str, list[ApplicationView]] = {}
    for name, view in views:
        found.setdefault(name, []).append(view)
    return found


def _usage_tree(user: UserView, owned: Sequence[ApplicationView]) -> Answer:
    """Return ResourceUsageDAOInfo of the root, with the used queues below it."""
    if ROOT not in user.usage:
        return {"queuePath": ROOT}
    below: dict[str, list[UsageState]] = {}
    for path, usage in sorted(user.usage.items()):
        below.setdefault(path.rpartition(".")[0], []).append(usage)
    return _usage(user.usage[ROOT], below, _running(owned))


def _running(owned: Sequence[ApplicationView]) -> dict[str, list[str]]:
    """Return the applications with an allocation by queue, including parent queues."""
    found: dict[str, list[str]] = {}
    for view in owned:
        path = view.summary.queue_name if view.allocations else ""
        while path:
            found.setdefault(path, []).append(view.summary.application_id)
            path = path.rpartition(".")[0]
    return found


def _usage(
    usage: UsageState, below: dict[str, list[UsageState]], running: dict[str, list[str]]
) -> Answer:
    children = [_usage(child, below, running) for child in below.get(usage.path, ())]
    return pruned(
        {
            "queuePath": usage.path,
            "resourceUsage": by_name(usage.usage),
            "runningApplications": running.get(usage.path, []),
            "maxResources": by_name(usage.max_resource or {}),
            "maxApplications": usage.max_applications,
            "children": children,
        },
        always=("queuePath",),
    )
