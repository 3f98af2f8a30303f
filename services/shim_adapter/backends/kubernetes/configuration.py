"""YuniKorn's two ConfigMaps: queues.yaml, and the service keys.

Source: docs/rules/queues.md#where-it-comes-from and docs/rules/configuration.md#service-keys.
"""

from collections.abc import Mapping

from services.shim_adapter.backends.kubernetes.bodies import PlaceholderOptions
from shared.model.numbers import parse_int64
from shared.model.scheduler_settings import TOPOLOGY_LEVELS
from shared.model.service_keys import from_environment, is_handed_on, unreadable
from shared.model.texts import parse_truth

DEFAULTS, CONFIGS = "yunikorn-defaults", "yunikorn-configs"
MAPS = (DEFAULTS, CONFIGS)  # the second wins, key by key
_ENVIRONMENT = "environment"  # as a ConfigMap before both
SETTING = "muster.scheduler."  # Muster's own scheduler settings, as in scenario files
_GROUP, _NO_GANGS = "service.policyGroup", "service.disableGangScheduling"
_HOT_REFRESH = "service.enableConfigHotRefresh"
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


def settings_of_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the scheduler settings that YuniKorn's environment variables set."""
    configuration = Configuration()
    configuration.take_environment(from_environment(variables))
    return configuration.scheduler_settings


class Configuration:
    """The merged ConfigMaps. A key that cannot be read counts as missing.

    After ``begin``, an update with an invalid service key is ignored as a whole, and so is every
    update without hot refresh, until a restart.
    """

    def __init__(self) -> None:
        self.ignored_for: list[str] = []  # why the last update was ignored, in sentences
        self._seen: dict[str, Mapping[str, str]] = {}
        self._maps: dict[str, Mapping[str, str]] = {}  # those of them that hold
        self._reported: list[str] = []
        self._taken: tuple[str, dict[str, str]] | None = None
        self._at_start: dict[str, str | None] = {}  # what holds until a restart, once begun
        self._ignored: dict[str, str | None] = {}  # its changes
        self.found_levels = ""  # the levels of the cluster where the setting names none

    def take(self, name: str, data: Mapping[str, str] | None) -> None:
        """Update a ConfigMap; None if it does not exist."""
        self._seen[name] = data or {}
        is_begun = bool(self._at_start)
        self.ignored_for = self._reasons_to_ignore() if is_begun else []
        if not self.ignored_for:
            self._maps = dict(self._seen)

    def take_environment(self, keys: Mapping[str, str]) -> None:
        """Set the values of the environment, which every ConfigMap overrides."""
        self.take(_ENVIRONMENT, keys)

    def _reasons_to_ignore(self) -> list[str]:
        if self._together(self._seen) == self._together(self._maps):
            return []
        if not self._truth(_HOT_REFRESH, default=True):
            return [f"{_HOT_REFRESH} is false: changes wait for a restart"]
        return unreadable(self._together(self._seen))

    @staticmethod
    def _together(maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        names = (_ENVIRONMENT, *MAPS)
        return {key: text for name in names for key, text in maps.get(name, {}).items()}

    def take_new_reasons(self) -> list[str]:
        """Return why the last update was ignored, once."""
        before, self._reported = self._reported, self.ignored_for
        return self.ignored_for if before != self.ignored_for else []

    def begin(self) -> None:
        """Fix the values that only change at a restart."""
        self._at_start = {key: self._message(key) for key in AT_START}
        self._taken = (self.queues, self.scheduler_settings)

    def take_ignored(self) -> list[str]:
        """Return the keys whose changes since the last call wait for a restart."""
        before, said = self._ignored, {key: self._message(key) for key in self._at_start}
        self._ignored = {key: said[key] for key in said if said[key] != self._at_start[key]}
        return [key for key, value in self._ignored.items() if before.get(key, ...) != value]

    def take_changed(self) -> bool:
        """Return whether queues or settings have changed since the last call."""
        before, self._taken = self._taken, (self.queues, self.scheduler_settings)
        return before != self._taken

    def put_back(self) -> None:
        """Undo ``take_changed``: the change could not be proposed."""
        self._taken = None

    def _get(self, key: str, default: str) -> str:
        value = self._at_start[key] if key in self._at_start else self._message(key)
        return default if value is None else value

    def _message(self, key: str) -> str | None:
        for name in (*reversed(MAPS), _ENVIRONMENT):
            value = self._maps.get(name, {}).get(key)
            if value is not None:
                return value
        return None

    @property
    def queues(self) -> str:
        """The queues.yaml, or YuniKorn's built-in default with a queue per namespace."""
        text = self._get(f"{self._get(_GROUP, 'queues')}.yaml", "")
        return text if text.strip() else BUILT_IN

    @property
    def scheduler_settings(self) -> dict[str, str]:
        """Muster's scheduler settings, and the service keys to pass on."""
        found = {TOPOLOGY_LEVELS: self.found_levels} if self.found_levels else {}
        at_start = {key: text for key, text in self._at_start.items() if text is not None}
        now = self._together(self._maps).items()
        held = {key: text for key, text in now if key not in self._at_start} | at_start
        for key in sorted(held):
            if key.startswith(SETTING):
                found[key.removeprefix(SETTING)] = held[key]
            elif is_handed_on(key) and not key.endswith(".yaml"):
                found[key] = held[key]
        return found

    @property
    def sets_levels(self) -> bool:
        """Whether a setting names the topology levels."""
        return self._message(f"{SETTING}{TOPOLOGY_LEVELS}") is not None

    @property
    def has_gangs(self) -> bool:
        """Whether gang scheduling is enabled."""
        return not self._truth(_NO_GANGS, default=False)

    @property
    def has_unique_applications(self) -> bool:
        """Whether a pod without an application id gets one of its own."""
        key = "admissionController.filtering.generateUniqueAppId"
        return self._truth(key, default=False)

    @property
    def placeholders(self) -> PlaceholderOptions:
        """The settings of placeholder pods."""
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
