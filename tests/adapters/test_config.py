"""Credentials as kubectl finds them; no secret in any message."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.config import ConfigError, Connection, Credentials, bypasses_proxy, load
from tests.adapters.server import Server

SECRET = "s3cr3t-token"


def kubeconfig(server: str = "http://127.0.0.1:1", name: str = "one", **user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": user or {"token": SECRET}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def write(path: Path, content: Any) -> str:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    """An exec credential plugin: a Python script."""
    file = tmp_path / "plugin.py"
    file.write_text(script)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(file)]}}


async def test_a_token_is_read_from_the_file_that_is_named(tmp_path: Path) -> None:
    credentials = Credentials.from_environment(write(tmp_path / "config", kubeconfig("http://127.0.0.1:1/")))
    assert credentials.connection.server == "http://127.0.0.1:1"
    assert await credentials.authorization() == f"Bearer {SECRET}"


async def test_several_files_are_merged_and_a_context_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = write(tmp_path / "one", kubeconfig("http://127.0.0.1:1"))
    two = write(tmp_path / "two", kubeconfig("http://127.0.0.1:2", name="two", token="other"))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([one, str(tmp_path / "missing"), two]))
    credentials = Credentials.from_environment(context="one")
    assert credentials.connection.where == "127.0.0.1:1"
    assert await credentials.authorization() == f"Bearer {SECRET}"
    assert Credentials.from_environment(context="two").connection.where == "127.0.0.1:2"
    # the flag goes before the environment
    assert Credentials.from_environment(two).connection.where == "127.0.0.1:2"


async def test_a_plugin_gives_the_token(tmp_path: Path) -> None:
    script = f"""
import json, os
assert json.loads(os.environ["KUBERNETES_EXEC_INFO"])["kind"] == "ExecCredential"
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {{"token": "{SECRET}"}}}}))
"""
    credentials = Credentials.from_environment(write(tmp_path / "config", kubeconfig(**plugin(tmp_path, script))))
    assert await credentials.authorization() == f"Bearer {SECRET}"


def test_a_plugin_that_fails_is_one_sentence_and_logs_nothing_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "config", kubeconfig(**plugin(tmp_path, "raise SystemExit('please\\nlog in')")))
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError) as caught:
        Credentials.from_environment(path)
    assert "credential plugin failed" in caught.value.message
    assert "please log in" in caught.value.message
    assert "\n" not in caught.value.message
    assert caplog.records == []


async def test_the_plugin_is_asked_again_once_its_token_has_expired(tmp_path: Path) -> None:
    script = f"""
import json, pathlib
count = pathlib.Path({str(tmp_path / "count")!r})
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {{
    "token": f"token-{{number}}", "expirationTimestamp": "2020-01-01T00:00:00Z"}}}}))
"""
    credentials = Credentials.from_environment(write(tmp_path / "config", kubeconfig(**plugin(tmp_path, script))))
    assert await credentials.authorization() == "Bearer token-2"


async def test_a_rotated_token_file_is_read_again_when_the_server_refuses_the_old_one(
    server: Server, tmp_path: Path
) -> None:
    alice = server.users.add("alice", groups=("system:masters",))
    token = tmp_path / "token"
    token.write_text(alice.token)
    path = write(tmp_path / "config", kubeconfig(server.http.url, tokenFile=str(token)))
    async with Client(Credentials.from_environment(path), server.clock) as client:
        await client.request("GET", "/api/v1/namespaces", dict[str, Any])
        token.write_text(server.users.add("alice", groups=("system:masters",), token="next").token)
        await client.request("GET", "/api/v1/namespaces", dict[str, Any])


def test_the_pods_service_account_is_used_where_there_is_no_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kubernetes.config.incluster_config as library

    monkeypatch.setattr(library, "SERVICE_TOKEN_FILENAME", write(tmp_path / "token", SECRET))
    monkeypatch.setattr(library, "SERVICE_CERT_FILENAME", write(tmp_path / "ca.crt", "a certificate"))
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "KUBECONFIG": ""}
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(library.os.environ, name, value)
    loaded = load(None, None, os.environ)
    assert loaded.connection.server == "https://[fd00::1]:443"
    assert loaded.connection.ca_file == str(tmp_path / "ca.crt")
    assert (loaded.authorization() or "").lower() == f"bearer {SECRET}"


@pytest.mark.parametrize(
    "content",
    [
        "users: [{name: one, user: {token: " + SECRET + "}",
        "just text " + SECRET,
        "- " + SECRET,
        {**kubeconfig(), "contexts": []},
        {**kubeconfig(), "clusters": [{"name": "one", "cluster": {}}]},
        {**kubeconfig(), "users": [{"name": "one", "token": SECRET}]},
        {**kubeconfig(), "users": [{"name": "one", "user": {"token": SECRET}}] * 2, "contexts": None},
        {**kubeconfig(), "current-context": "nobody"},
        "",
    ],
)
def test_a_broken_file_is_one_sentence_without_its_secrets(tmp_path: Path, content: Any) -> None:
    path = write(tmp_path / "config", content)
    with pytest.raises(ConfigError) as caught:
        Credentials.from_environment(path)
    assert SECRET not in caught.value.message
    assert "\n" not in caught.value.message
    assert path in caught.value.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no kubeconfig at .*missing"):
        load(str(tmp_path / "missing"), None, {})


def test_no_cluster_at_all_points_to_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="taintctl sandbox"):
        load(None, None, {})


def test_an_unknown_context_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nobody"):
        Credentials.from_environment(write(tmp_path / "config", kubeconfig()), "nobody")


def test_certificates_that_do_not_load_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certificates can't be used"):
        Connection("https://127.0.0.1:1", ca_file=write(tmp_path / "ca", "no certificate")).ssl_context()


def test_a_connection_shows_neither_its_path_nor_its_proxy() -> None:
    text = repr(Connection(f"http://127.0.0.1:1/as/{SECRET}", proxy=f"http://me:{SECRET}@proxy:1"))
    assert SECRET not in text


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        ("https://127.0.0.1:6443", "", True),
        ("https://localhost:6443", "", True),
        ("https://[::1]:6443", "", True),
        ("https://cluster.example.com", "", False),
        ("https://cluster.example.com", "example.com", True),
        ("https://10.0.0.1", "10.0.0.0/8", True),
    ],
)
def test_loopback_and_what_no_proxy_names_are_reached_directly(server: str, no_proxy: str, direct: bool) -> None:
    assert bypasses_proxy(server, no_proxy) is direct


def test_a_socks_proxy_is_refused_without_its_password(tmp_path: Path) -> None:
    config = kubeconfig("https://cluster.example.com")
    config["clusters"][0]["cluster"]["proxy-url"] = f"socks5://me:{SECRET}@proxy:1"
    with pytest.raises(ConfigError, match="not socks5") as caught:
        Credentials.from_environment(write(tmp_path / "config", config))
    assert SECRET not in caught.value.message


def test_the_library_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, taintctl.adapters.kubernetes.cluster; raise SystemExit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
