"""The settings of a service, read from environment variables.

Every variable starts with MUSTER_. An unknown one is an error, so that a misspelt variable does not
silently leave a default.
"""

import os
import re
from pathlib import Path
from urllib.parse import quote, urlsplit

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from shared.messages.envelope import MAX_INSTANCE
from shared.model.numbers import INT64_MAX
from shared.model.units import MAX_DURATION_NS, NANOS_PER_SECOND

_PREFIX = "MUSTER_"
_MAX_SECONDS = MAX_DURATION_NS // NANOS_PER_SECOND
_HEALTH = (
    "where `/health/live`, `/health/ready` and `/metrics` are; the API has them at its own port too"
)
_CREDENTIALS = re.compile(r"//[^@/]*@")


class SettingsError(ValueError):
    """The environment is invalid; the message names the variable and what was expected."""


class Settings(BaseSettings):
    """The variables of every service, with units in their names."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, frozen=True)

    bus_url: str = Field(
        default="",
        pattern="^(amqps?://.*)?$",
        description="URL of the broker: `amqp://USER@HOST:5672/`; of a cluster: "
        "`amqp://USER@h1:5672,h2:5672,h3:5672/`; every service needs it",
    )
    bus_heartbeat_seconds: int = Field(
        default=3, ge=1, le=600, description="a connection that is silent for two to three of them "
        "is lost; a larger value suits a starved machine, but notices a stopped broker later",
    )  # fmt: skip
    bus_prefix: str = Field(
        default="muster", pattern=r"^[a-zA-Z0-9_-]{1,64}$",
        description="prefix of all names on the broker",
    )  # fmt: skip
    bus_password_file: Path | None = Field(
        default=None, description="file with the broker password, if `MUSTER_BUS_URL` has none"
    )
    bus_topology: str = Field(
        default="declared", pattern="^(declared|given)$",
        description="declared: services declare their queues; given: the broker's "
        "[definitions](security.md#the-broker) have them, and services may declare nothing",
    )  # fmt: skip
    instance: str = Field(
        default="", pattern=r"^[a-zA-Z0-9_.:-]*$", max_length=MAX_INSTANCE,
        description="name of this instance; empty: host name and process id",
    )  # fmt: skip
    commit: str = Field(
        default="", max_length=64, description="commit of the build; the image sets it"
    )
    api_url: str = Field(default="", description="URL of the API, for the command line only")
    token: SecretStr = Field(
        default=SecretStr(""), description="token of the command line; no service reads it"
    )
    health_host: str = Field(default="127.0.0.1", description=_HEALTH)
    health_port: int = Field(default=0, ge=0, le=65535, description="port of these; 0: none")
    log_format: str = Field(
        default="auto", pattern="^(auto|json|text)$", description="auto: text on a terminal"
    )
    log_level: str = Field(
        default="info",
        pattern="^(debug|info|warning|error)$",
        description="the lowest level that is logged",
    )
    http_host: str = Field(default="127.0.0.1", description="address on which the API listens")
    http_port: int = Field(
        default=9080, ge=0, le=65535, description="port of the API; 0: a free one"
    )
    http_names: str = Field(
        default="",
        description="comma-separated hosts by which browsers reach the API, or whose pages may "
        "read from it, such as YuniKorn's web client at another address",
    )
    http_certificate: Path | None = Field(
        default=None, description="for HTTPS: certificate of the API, with intermediate "
        "certificates; read again when it changes",
    )  # fmt: skip
    http_key: Path | None = Field(
        default=None, description="key of the certificate; empty: in the same file"
    )
    authentication: str = Field(
        default="required", pattern="^(required|off)$",
        description="required: tokens are needed unless the API listens on loopback addresses "
        "only; off: a proxy in front authenticates",
    )  # fmt: skip
    tokens_file: Path | None = Field(
        default=None,
        description="[tokens and roles](security.md#tokens), read again when it changes",
    )
    oidc_issuer: str = Field(
        default="",
        description="issuer of [OpenID tokens](security.md#openid-connect) to accept as well",
    )
    oidc_audience: str = Field(default="", description="the audience that these tokens must have")
    oidc_keys: str = Field(
        default="", description="public keys of the issuer, a file or URL; empty: discovered"
    )
    oidc_algorithms: str = Field(
        default="RS256,ES256", description="accepted signature algorithms, comma-separated"
    )
    oidc_name_claim: str = Field(default="sub", description="the claim with the user's name")
    oidc_role_claim: str = Field(
        default="roles", description="the claim with the user's roles; dots for nested claims"
    )
    oidc_roles: str = Field(
        default="read=muster-read,submit=muster-submit,operate=muster-operate",
        description="which value of that claim means which role",
    )
    metrics_access: str = Field(
        default="read", pattern="^(read|open)$",
        description="whether metrics of the API need a token with the role read",
    )  # fmt: skip
    resource_manager: str = Field(
        default="simulated", pattern="^(simulated|kubernetes)$",
        description="the cluster that the shim adapter manages",
    )  # fmt: skip
    kubeconfig: Path | None = Field(
        default=None, description="kubeconfig of the cluster; empty: this pod's service account"
    )
    kubernetes_url: str = Field(
        default="", pattern="^(https?://.*)?$",
        description="an API server without authentication, such as `kubectl proxy`",
    )  # fmt: skip
    kubernetes_namespace: str = Field(
        default="", description="namespace of the ConfigMaps and the Lease; empty: this pod's"
    )
    admission_host: str = Field(
        default="0.0.0.0",  # noqa: S104 - the API server comes from outside
        description="address of the [admission webhook](kubernetes.md#the-admission-webhook)",
    )
    admission_port: int = Field(default=9443, ge=0, le=65535, description="port of the webhook")
    admission_names: str = Field(
        default="", pattern=r"^[a-z0-9.:,-]{0,1000}$",
        description="comma-separated names and addresses by which the API server reaches it, if "
        "not by its Service",
    )  # fmt: skip
    cluster_id: str = Field(
        default="mycluster", description="YuniKorn's `service.clusterId`, shown in its answers"
    )
    state_dir: Path | None = Field(
        default=None, description="folder for the simulated cluster's state; empty: in memory"
    )
    queues_file: Path | None = Field(
        default=None, description="the queues.yaml, watched for changes; empty: `root.default`"
    )
    simulated_nodes: int = Field(
        default=0, ge=0, le=100_000, description="nodes of the simulated cluster at first start"
    )
    simulated_node_vcore_milli: int = Field(
        default=16_000, ge=1, le=INT64_MAX, description="CPU of each, in thousandths of a core"
    )
    simulated_node_memory_bytes: int = Field(
        default=64 * 2**30, ge=1, le=INT64_MAX, description="memory of each, in bytes"
    )
    simulated_ended_pods: int | None = Field(
        default=None, ge=1, le=100_000, description="how many ended pods the simulated cluster "
        "remembers; then the oldest are dropped; default 20,000",
    )  # fmt: skip
    pod_run_seconds: int = Field(
        default=30, ge=0, le=_MAX_SECONDS,
        description="run time of a simulated pod that states none; "
        "0: for ever",
    )  # fmt: skip
    pod_start_delay_ms: int = Field(
        default=0,
        ge=0,
        le=_MAX_SECONDS * 1000,
        description="delay from bind to start of a simulated pod",
    )
    release_delay_ms: int = Field(
        default=0,
        ge=0,
        le=_MAX_SECONDS * 1000,
        description="delay from deletion to end of a simulated pod",
    )


def load_settings() -> Settings:
    """Read the settings from the environment. Raises SettingsError."""
    known = {f"{_PREFIX}{name}".upper() for name in Settings.model_fields}
    unknown = [name for name in os.environ if name.startswith(_PREFIX) and name not in known]
    if unknown:
        raise SettingsError(f"unknown variable {unknown[0]}; known are {', '.join(sorted(known))}")
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = f"{_PREFIX}{first['loc'][0]}".upper()
        found = without_credentials(repr(first["input"]))
        raise SettingsError(f"{name}: {first['msg']}, found {found}") from error


def bus_url(settings: Settings) -> str:
    """Return the broker's URL with the password. Raises OSError, SettingsError."""
    if not settings.bus_url:
        raise SettingsError(
            "MUSTER_BUS_URL is missing: amqp://USER@HOST:5672/, with MUSTER_BUS_PASSWORD_FILE"
        )
    if settings.bus_password_file is None:
        return settings.bus_url
    parts = urlsplit(settings.bus_url)
    user, _, where = parts.netloc.rpartition("@")
    if not user or ":" in user:
        raise SettingsError(
            "MUSTER_BUS_PASSWORD_FILE: a user without a password is expected in MUSTER_BUS_URL"
        )
    password = settings.bus_password_file.read_text().strip()
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{where}").geturl()


def without_credentials(url: str) -> str:
    """Return a URL without user and password, for logs."""
    return _CREDENTIALS.sub("//", url)
