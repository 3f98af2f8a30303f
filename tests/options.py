"""What ``make test`` may be asked for besides: said here, where it costs nothing to import."""

import os

import pytest

OPTION = "--real-api-server"
REAL_GROUP = "real-api-server"  # one worker has it to itself: others would empty it meanwhile
NOT_REAL = (
    "none was asked for: make test-kubernetes, KUBEBUILDER_ASSETS (the folder of etcd and "
    "kube-apiserver) or KUBECONFIG"
)


def is_real_asked(config: pytest.Config) -> bool:
    """Tell whether tests are to run on a real API server too."""
    named = os.environ.get("KUBECONFIG") or os.environ.get("KUBEBUILDER_ASSETS")
    return bool(config.getoption(OPTION) or named)
