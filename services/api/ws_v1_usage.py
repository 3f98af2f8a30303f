"""YuniKorn's answers about users, groups and placement rules (contract section 5.3)."""

from services.api.projection.model import Model
from services.api.ws_v1 import Answer, by_name, pruned
from shared.messages.state import PlacementRuleState, RuleState, UsageState, UserState
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


def user_info(user: UserState) -> Answer:
    """Return UserResourceUsageDAOInfo."""
    groups = by_name({name: group for name, group in user.applications.items() if group})
    return pruned(
        {"userName": user.name, "groups": groups, "queues": usage_tree(user)},
        always=("userName", "queues"),
    )


def group_info(group: UserState) -> Answer:
    """Return GroupResourceUsageDAOInfo."""
    return pruned(
        {
            "groupName": group.name,
            "applications": list(group.applications),
            "queues": usage_tree(group),
        },
        always=("groupName", "queues"),
    )


def usage_tree(user: UserState) -> Answer:
    """Return ResourceUsageDAOInfo of the root, with the queues below it that are used."""
    by_path = {usage.path: usage for usage in user.queues}
    if ROOT not in by_path:
        return {"queuePath": ROOT}
    return _usage(by_path[ROOT], by_path)


def _usage(usage: UsageState, by_path: dict[str, UsageState]) -> Answer:
    children = [
        _usage(below, by_path)
        for path, below in sorted(by_path.items())
        if path.rpartition(".")[0] == usage.path
    ]
    return pruned(
        {
            "queuePath": usage.path,
            "resourceUsage": by_name(usage.usage),
            "runningApplications": list(usage.running),
            "maxResources": by_name(usage.max_resource or {}),
            "maxApplications": usage.max_applications,
            "children": children,
        },
        always=("queuePath",),
    )
