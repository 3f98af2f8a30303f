"""The two ConfigMaps: queues.yaml, and the service's own keys.

Source: docs/rules/queues.md#where-it-comes-from and docs/rules/configuration.md#service-keys.
"""

from collections.abc import Mapping

from services.shim_adapter.backends.kubernetes.bodies import PlaceholderOptions
from shared.model.names import EVENT_SETTING
from shared.model.numbers import parse_int64
from shared.model.scheduler_settings import TOPOLOGY_LEVELS
from shared.model.texts import parse_truth

DEFAULTS, CONFIGS = "yunikorn-defaults", "yunikorn-configs"
MAPS = (DEFAULTS, CONFIGS)  # the second wins, key by key
SETTING = "muster.scheduler."  # Muster's own scheduler settings, as in scenario files
_GROUP, _NO_GANGS = "service.policyGroup", "service.disableGangScheduling"
_IMAGE = "service.placeholderImage"
_USER, _FILES = "service.placeholderRunAsUser", "service.placeholderFsGroup"
_USERS_GROUP = "service.placeholderRunAsGroup"
# A change of these waits for a restart (docs/rules/configuration.md#service-keys).
AT_START = (_GROUP, _NO_GANGS, _IMAGE, _USER, _USERS_GROUP, _FILES)
BUILT_IN = """\
partitions:
  - name: default
    placementrules:
      - name: tag
        value: namespace
        create: true
    queues:
      - name: root
        submitacl: '*'
"""


class Configuration:
    """What the ConfigMaps say together. A key that cannot be read is as if it were not there."""

    def __init__(self) -> None:
        self._maps: dict[str, Mapping[str, str]] = {}
        self._taken: tuple[str, dict[str, str]] | None = None
        self._at_start: dict[str, str | None] = {}  # what holds until a restart, once begun
        self._ignored: dict[str, str | None] = {}  # its changes
        self.found_levels = ""  # the levels of the cluster where the setting names none

    def take(self, name: str, data: Mapping[str, str] | None) -> None:
        """Take a ConfigMap in, or that there is none."""
        self._maps[name] = data or {}

    def begin(self) -> None:
        """Take in that what it says now holds from the start."""
        self._at_start = {key: self._message(key) for key in AT_START}
        self._taken = (self.queues, self.scheduler_settings)

    def take_ignored(self) -> list[str]:
        """Return the keys that have changed since this was asked last, and wait for a restart."""
        before, said = self._ignored, {key: self._message(key) for key in self._at_start}
        self._ignored = {key: said[key] for key in said if said[key] != self._at_start[key]}
        return [key for key, value in self._ignored.items() if before.get(key, ...) != value]

    def take_changed(self) -> bool:
        """Return whether what it says has changed since this was asked last.

        While hot refresh is off nothing is taken; once it is on again, all that has changed since.
        """
        if not self._truth("service.enableConfigHotRefresh", default=True):
            return False
        before, self._taken = self._taken, (self.queues, self.scheduler_settings)
        return before != self._taken

    def put_back(self) -> None:
        """Take in that what was taken could not be said: it has changed still."""
        self._taken = None

    def _get(self, key: str, default: str) -> str:
        value = self._at_start[key] if key in self._at_start else self._message(key)
        return default if value is None else value

    def _message(self, key: str) -> str | None:
        for name in reversed(MAPS):
            value = self._maps.get(name, {}).get(key)
            if value is not None:
                return value
        return None

    @property
    def queues(self) -> str:
        """Return queues.yaml; without one YuniKorn's built-in default: a queue a namespace."""
        text = self._get(f"{self._get(_GROUP, 'queues')}.yaml", "")
        return text if text.strip() else BUILT_IN

    @property
    def scheduler_settings(self) -> dict[str, str]:
        """Return Muster's own scheduler settings, and the events' keys for the API."""
        found = {TOPOLOGY_LEVELS: self.found_levels} if self.found_levels else {}
        return found | self._with(SETTING, SETTING) | self._with(EVENT_SETTING, "")

    @property
    def sets_levels(self) -> bool:
        """Return whether the setting names the levels of the cluster."""
        return self._message(f"{SETTING}{TOPOLOGY_LEVELS}") is not None

    def _with(self, prefix: str, dropped: str) -> dict[str, str]:
        """Return the keys with a prefix, which loses a part."""
        keys = {key for name in MAPS for key in self._maps.get(name, {}) if key.startswith(prefix)}
        return {key.removeprefix(dropped): self._get(key, "") for key in sorted(keys)}

    @property
    def has_gangs(self) -> bool:
        """Return whether gang scheduling is not switched off."""
        return not self._truth(_NO_GANGS, default=False)

    @property
    def has_unique_applications(self) -> bool:
        """Return whether a pod that names no application gets one of its own."""
        key = "admissionController.filtering.generateUniqueAppId"
        return self._truth(key, default=False)

    @property
    def placeholders(self) -> PlaceholderOptions:
        """Return how placeholder pods are made."""
        plain = PlaceholderOptions()
        return PlaceholderOptions(
            image=self._get(_IMAGE, plain.image),
            run_as_user=self._number(_USER),
            run_as_group=self._number(_USERS_GROUP),
            fs_group=self._number(_FILES),
        )

    def _truth(self, key: str, *, default: bool) -> bool:
        value = parse_truth(self._get(key, ""))
        return default if value is None else value

    def _number(self, key: str) -> int | None:
        value = parse_int64(self._get(key, ""))
        return value if value is not None and value >= 0 else None
