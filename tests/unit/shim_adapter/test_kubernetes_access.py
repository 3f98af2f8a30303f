"""Where the API server is: kubeconfig files, the pod's service account, and what is said without."""

import base64
import json

import pytest

from services.shim_adapter.backends.kubernetes import access as access_module
from services.shim_adapter.backends.kubernetes.access import AccessError, find_access
from tests.table import each_row


def kubeconfig(tmp_path, user=None, cluster=None, **changes):
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ns"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://host:8080/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        **changes,
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return path


def test_a_kubeconfig_says_where_who_and_in_which_namespace(tmp_path):
    found = find_access(kubeconfig(tmp_path, {"token": "t"}))
    assert (found.url, found.namespace, found.authorization()) == (
        "http://host:8080",
        "ns",
        "Bearer t",
    )


def test_a_token_file_is_read_anew(tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("one\n")
    found = find_access(kubeconfig(tmp_path, {"tokenFile": str(token)}))
    assert found.authorization() == "Bearer one"
    token.write_text("two\n")
    monkeypatch.setattr(access_module, "_REREAD_SECONDS", 0.0)
    assert found.authorization() == "Bearer two"


@each_row(
    ("user", "cluster", "changes", "sentence"),
    [
        ({"exec": {"command": "aws"}}, {}, {}, "credentials from a program are not supported"),
        ({}, {}, {"current-context": "other"}, "contexts other"),
        ({}, {}, {"clusters": []}, "clusters k"),
        ({}, {}, {"contexts": "none"}, "not a kubeconfig"),
        ({}, {"server": "https://h", "certificate-authority-data": base64.b64encode(b"x").decode()}, {}, "certificates"),
        ({"client-certificate-data": "AAAA"}, {"server": "https://h"}, {}, "certificates"),
    ],
)  # fmt: skip
def test_a_kubeconfig_that_does_not_hold_says_why(tmp_path, user, cluster, changes, sentence):
    with pytest.raises(AccessError, match=sentence):
        find_access(kubeconfig(tmp_path, user, cluster, **changes))


def test_a_file_that_is_not_there_or_not_yaml_says_so(tmp_path):
    with pytest.raises(AccessError, match="No such file"):
        find_access(tmp_path / "none")
    (tmp_path / "bad").write_text("a: [")
    with pytest.raises(AccessError, match="bad"):
        find_access(tmp_path / "bad")


def test_in_a_pod_the_service_account_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(access_module, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(AccessError, match="MUSTER_KUBECONFIG"):
        find_access(None)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("muster")
    monkeypatch.setattr(access_module.ssl, "create_default_context", lambda cafile: cafile)
    found = find_access(None)
    assert (found.url, found.namespace) == ("https://[fd00::1]:6443", "muster")
    assert found.authorization() == "Bearer t"
    assert str(found.tls).endswith("ca.crt")


def test_a_plain_url_needs_nothing_else():
    assert find_access(None, "http://localhost:8001/").url == "http://localhost:8001"
