"""What a service is told by its environment.

Every variable starts with MUSTER_; ones that are not known are errors, so that a misspelt one is
not silently a default.
"""

import os
import re
from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.messages.envelope import MAX_INSTANCE
from shared.model.numbers import INT64_MAX
from shared.model.units import MAX_DURATION_NS, NANOS_PER_SECOND

_PREFIX = "MUSTER_"
_MAX_SECONDS = MAX_DURATION_NS // NANOS_PER_SECOND
_CREDENTIALS = re.compile(r"//[^@/]*@")


class SettingsError(ValueError):
    """The environment does not hold; the message names the variable and what was expected."""


class Settings(BaseSettings):
    """The variables of every service, with units in their names."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True)

    bus_url: str = Field(default="amqp://guest:guest@127.0.0.1:5672/", pattern="^amqps?://")
    bus_prefix: str = Field(default="muster", pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    instance: str = Field(default="", pattern=r"^[a-zA-Z0-9_.:-]*$", max_length=MAX_INSTANCE)
    commit: str = Field(default="", max_length=64)  # of the build, which the image says
    api_url: str = ""  # the command line's, known here so that it may stand beside the others
    health_host: str = "127.0.0.1"
    health_port: int = Field(default=0, ge=0, le=65535)  # 0: no health server
    log_format: str = Field(default="auto", pattern="^(auto|json|text)$")
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=9080, ge=0, le=65535)
    http_names: str = ""  # hosts, with commas between, under which browsers reach the API
    resource_manager: str = Field(default="simulated", pattern="^(simulated|kubernetes)$")
    kubeconfig: Path | None = None  # without one: the service account of the pod we run in
    kubernetes_url: str = Field(default="", pattern="^(https?://.*)?$")  # `kubectl proxy`, say
    kubernetes_namespace: str = ""  # of the ConfigMaps and the Lease; empty: our own
    cluster_id: str = "mycluster"
    state_dir: Path | None = None
    queues_file: Path | None = None
    simulated_nodes: int = Field(default=0, ge=0, le=100_000)
    simulated_node_vcore_milli: int = Field(default=16_000, ge=1, le=INT64_MAX)
    simulated_node_memory_bytes: int = Field(default=64 * 2**30, ge=1, le=INT64_MAX)
    pod_run_seconds: int = Field(default=30, ge=0, le=_MAX_SECONDS)
    pod_start_delay_ms: int = Field(default=0, ge=0, le=_MAX_SECONDS * 1000)
    release_delay_ms: int = Field(default=0, ge=0, le=_MAX_SECONDS * 1000)


def load_settings() -> Settings:
    """Return the settings in the environment. Raises SettingsError."""
    known = {f"{_PREFIX}{name}".upper() for name in Settings.model_fields}
    unknown = [name for name in os.environ if name.startswith(_PREFIX) and name not in known]
    if unknown:
        raise SettingsError(f"unknown variable {unknown[0]}; known are {', '.join(sorted(known))}")
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = f"{_PREFIX}{first['loc'][0]}".upper()
        raise SettingsError(f"{name}: {first['msg']}, found {first['input']!r}") from error


def without_credentials(url: str) -> str:
    """Return a URL that may be logged."""
    return _CREDENTIALS.sub("//", url)
