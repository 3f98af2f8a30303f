"""Access control lists of queues (docs/rules/queues.md#access)."""

from dataclasses import dataclass

from shared.model.names import ACL_GROUP, ACL_USER

_EVERYBODY = "*"


@dataclass(frozen=True, slots=True)
class Access:
    """The users and groups that an ACL allows. Empty: none."""

    everybody: bool = False
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def allows(self, user: str, groups: tuple[str, ...]) -> bool:
        """Whether the list names a user or one of the groups."""
        return self.everybody or user in self.users or any(g in self.groups for g in groups)


NOBODY = Access()


def parse_access(text: str) -> Access:
    """Parse an ACL: ``user1,user2 group1,group2``; invalid names are dropped.

    A list that is only ``*`` allows all users, ``*`` among other names none; a text that starts
    with a space names groups only.
    """
    users, _, groups = text.rstrip().partition(" ")
    user_names = [name for name in users.split(",") if name]
    group_names = [name for name in groups.strip().split(",") if name]
    if [_EVERYBODY] in (user_names, group_names):
        return Access(everybody=True)
    return Access(
        users=frozenset(name for name in user_names if ACL_USER.match(name)),
        groups=frozenset(name for name in group_names if ACL_GROUP.match(name)),
    )
