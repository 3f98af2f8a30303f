"""Which namespaces are Muster's, and which users may set the user of a pod.

The keys `admissionController.…` of the two ConfigMaps. Lists are regular expressions (RE2)
separated by commas, any of which may match anywhere. A value that cannot be read is ignored;
``wrong_in`` reports it, so that the webhook refuses it before it is stored.
Source: docs/rules/configuration.md#admission.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from shared.model.patterns import Pattern, compile_pattern
from shared.model.texts import parse_truth

PREFIX = "admissionController."
FILTERING = f"{PREFIX}filtering."
ACCESS = f"{PREFIX}accessControl."
ENABLE = "yunikorn.apache.org/namespace.enableYuniKorn"
GENERATE = "yunikorn.apache.org/namespace.generateAppId"
MAX_LIST = 64 * 1024  # characters of a list of expressions; a longer one is ignored
MAX_NAME = 1024  # characters of a user's or group's name; a longer one matches nothing

Patterns = tuple[Pattern, ...]


def _patterns(text: str) -> Patterns:
    if len(text) > MAX_LIST:
        raise ValueError(f"at most {MAX_LIST} characters, found {len(text)}")
    found: list[Pattern] = []
    for part in filter(None, map(str.strip, text.split(","))):
        pattern = compile_pattern(part)
        if pattern is None:
            raise ValueError(f"{part[:MAX_NAME]!r} is no regular expression (RE2)")
        found.append(pattern)
    return tuple(found)


_KUBE_SYSTEM = _patterns("^kube-system$")
_CONTROLLERS = _patterns("^system:serviceaccount:kube-system:")


@dataclass(frozen=True, slots=True)
class Filters:
    """The values of the keys; each default is YuniKorn's."""

    process_namespaces: Patterns = ()  # none: all
    bypass_namespaces: Patterns = _KUBE_SYSTEM
    label_namespaces: Patterns = ()  # none: all
    no_label_namespaces: Patterns = ()
    generate_unique_app_id: bool = False
    bypass_auth: bool = False
    trust_controllers: bool = True
    system_users: Patterns = _CONTROLLERS
    external_users: Patterns = ()
    external_groups: Patterns = ()

    def processes(self, namespace: str, annotations: Mapping[str, str]) -> bool:
        """Return whether the pods of a namespace become Muster's."""
        said = _either(annotations.get(ENABLE, ""))
        if said is not None:
            return said
        return _within(namespace, self.process_namespaces, self.bypass_namespaces)

    def labels(self, namespace: str, annotations: Mapping[str, str]) -> bool:
        """Return whether the pods of a namespace get an application."""
        said = _either(annotations.get(GENERATE, ""))
        if said is not None:
            return said
        return _within(namespace, self.label_namespaces, self.no_label_namespaces)

    def is_system(self, user: str) -> bool:
        """Return whether a user is a system account, such as that of a controller."""
        return _matches(user, self.system_users)

    def may_name_others(self, user: str, groups: Sequence[str]) -> bool:
        """Whether this user may set the pod's owner."""
        if self.trust_controllers and self.is_system(user):
            return True
        if _matches(user, self.external_users):
            return True
        return any(_matches(group, self.external_groups) for group in groups)


KEYS = {
    field.name: (FILTERING if at < 5 else ACCESS)  # noqa: PLR2004 - the first five, see below
    + re.sub("_(.)", lambda found: found[1].upper(), field.name)
    for at, field in enumerate(fields(Filters))
}


def filters_of(maps: Sequence[Mapping[str, str]]) -> Filters:
    """Return the filters of the ConfigMaps; for each key the last map that has it counts."""
    return _read(maps)[0]


def wrong_in(data: Mapping[str, str]) -> list[str]:
    """Return the values of a ConfigMap that cannot be read, with one sentence each."""
    return _read([data])[1]


def _read(maps: Sequence[Mapping[str, str]]) -> tuple[Filters, list[str]]:
    given: dict[str, Patterns | bool] = {}
    wrong: list[str] = []
    for field in fields(Filters):
        key = KEYS[field.name]
        for data in maps:
            text = data.get(key)
            if text is None:
                continue
            try:
                is_flag = isinstance(field.default, bool)
                given[field.name] = _flag(text) if is_flag else _patterns(text)
            except ValueError as error:
                wrong.append(f"{key}: {error}")
    return Filters(**given), wrong  # type: ignore[arg-type]


def _flag(text: str) -> bool:
    found = parse_truth(text)
    if found is None:
        raise ValueError(f"expected true or false, found {text[:MAX_NAME]!r}")
    return found


def _either(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text)


def _within(name: str, wanted: Patterns, unwanted: Patterns) -> bool:
    return (not wanted or _matches(name, wanted)) and not _matches(name, unwanted)


def _matches(name: str, patterns: Patterns) -> bool:
    return len(name) <= MAX_NAME and any(pattern.search(name) for pattern in patterns)
