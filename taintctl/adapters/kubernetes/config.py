"""Where the API server is and who we are: kubeconfig, exec plugins and service accounts, by the `kubernetes` library.

The library is imported where it is used: it takes half a second, which a command that ends at once should not pay.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from taintctl.api.text import one_line
from taintctl.ports.errors import ClusterError

DEFAULT_KUBECONFIG = "~/.kube/config"
REFRESH_AFTER = 10.0
"""Seconds after which the library is asked again for the token (it re-reads a rotated one each minute)."""
PLUGIN_TIMEOUT = 60.0
"""Seconds that an exec plugin may take when it is asked for a fresh token."""


class ConfigError(ClusterError):
    """No usable credentials: one sentence that names the file or the setting, and never a secret."""


@dataclass(frozen=True)
class Connection:
    """How to reach the API server. Files rather than contents; what may hold a secret is not in its text."""

    server: str = field(repr=False)
    """A base URL. Its path can be a secret (the sandbox's is): people are shown `where`."""
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    tls_server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)

    @property
    def where(self) -> str:
        """Host and port, for messages."""
        url = urlsplit(self.server)
        return f"{url.hostname}:{url.port}" if url.port else str(url.hostname)

    def redact(self, text: str) -> str:
        """`text` with `where` in place of the server's whole address."""
        return text.replace(self.server, self.where)

    def ssl_context(self) -> ssl.SSLContext:
        """TLS as the kubeconfig asks for it. Raises ConfigError where a certificate can't be read."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"The kubeconfig's certificates can't be used ({one_line(str(error), 200)}); check its CA and client "
                "certificate."
            ) from None
        return context


@dataclass(frozen=True)
class Loaded:
    """What one loading gave: the connection, and how to get the current Authorization header (None: none)."""

    connection: Connection
    authorization: Callable[[], str | None]
    fixed: bool = False
    """The header never changes: nothing is read or run to get it."""


class Credentials:
    """The connection and a token that is kept current.

    `load` is called again when the server no longer knows us (401): token files, client certificates and plugins
    rotate in ways the library does not notice.
    """

    def __init__(self, load: Callable[[], Loaded]) -> None:
        self._load = load
        self._loaded = load()
        self._header: str | None = None
        self._asked_at: float | None = None
        self._lock = asyncio.Lock()

    @classmethod
    def from_environment(cls, kubeconfig: str | None = None, context: str | None = None) -> Credentials:
        """As kubectl does it: `kubeconfig`, else $KUBECONFIG (several files are merged), else ~/.kube/config, else
        the pod's service account. Raises ConfigError."""
        return cls(lambda: load(kubeconfig, context, os.environ))

    @classmethod
    def static(cls, server: str, *, token: str | None = None, ca_file: str | None = None) -> Credentials:
        """A fixed server and bearer token."""
        header = f"Bearer {token}" if token else None
        return cls(lambda: Loaded(Connection(server.rstrip("/"), ca_file=ca_file), lambda: header, fixed=True))

    @property
    def connection(self) -> Connection:
        return self._loaded.connection

    async def authorization(self) -> str | None:
        """The Authorization header's value, refreshed where it has expired. Raises ConfigError."""
        if self._loaded.fixed:
            return self._loaded.authorization()
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._asked_at is None or now - self._asked_at > REFRESH_AFTER:
                self._header = await _in_thread(self._loaded.authorization)
                self._asked_at = now
            return self._header

    async def reload(self) -> None:
        """Reads everything anew: the server said 401. Raises ConfigError."""
        if self._loaded.fixed:
            return
        async with self._lock:
            self._loaded = await _in_thread(self._load)
            self._asked_at = None


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Token files and plugins block; a plugin that hangs must not stop everything."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(work), PLUGIN_TIMEOUT)
    except ConfigError:
        raise
    except TimeoutError:
        raise ConfigError(
            f"The kubeconfig's credential plugin did not answer in {PLUGIN_TIMEOUT:.0f} s; run it by hand to see why."
        ) from None
    except Exception as error:
        raise ConfigError(f"The credentials can't be refreshed: {_safe(error)}; log in again.") from None


def load(kubeconfig: str | None, context: str | None, environ: Mapping[str, str]) -> Loaded:
    """One loading of the credentials, blocking (plugins are run). Raises ConfigError."""
    paths = kubeconfig or environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    existing = [p for p in paths.split(os.pathsep) if p and Path(p).expanduser().is_file()]
    if existing:
        return _from_kubeconfig(paths, context)
    if kubeconfig or environ.get("KUBECONFIG"):
        raise ConfigError(f"There is no kubeconfig at {one_line(paths, 200)}; check --kubeconfig or $KUBECONFIG.")
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster()
    raise ConfigError(
        "No cluster is configured: give --kubeconfig or set $KUBECONFIG, or try one with `taintctl sandbox`."
    )


def _from_kubeconfig(paths: str, context: str | None) -> Loaded:
    from kubernetes.client import Configuration
    from kubernetes.config import load_kube_config

    configuration = type.__call__(Configuration, host="")
    with _plugin_errors() as plugin_errors:
        try:
            load_kube_config(  # type: ignore[no-untyped-call]
                config_file=paths, context=context, client_configuration=configuration
            )
        except Exception as error:  # the library raises whatever a broken file makes it stumble over
            raise ConfigError(f"The kubeconfig {one_line(paths, 200)} can't be used: {_safe(error)}") from None
    if plugin_errors:
        raise ConfigError(
            f"The kubeconfig's credential plugin failed: {one_line(plugin_errors[0], 300)}; run it by hand to see why."
        )
    if not configuration.host:
        raise ConfigError(f"The kubeconfig {one_line(paths, 200)} names no server for this context.")
    return _loaded(configuration)


def _in_cluster() -> Loaded:
    from kubernetes.client import Configuration
    from kubernetes.config import load_incluster_config

    configuration = type.__call__(Configuration)
    try:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigError(f"The pod's service account can't be used: {_safe(error)}") from None
    return _loaded(configuration)


def _loaded(configuration: Any) -> Loaded:
    proxy = configuration.proxy
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise ConfigError(f"Only http and https proxies are known, not {one_line(proxy.partition(':')[0], 20)}.")
    connection = Connection(
        server=configuration.host.rstrip("/"),
        ca_file=configuration.ssl_ca_cert,
        cert_file=configuration.cert_file,
        key_file=configuration.key_file,
        verify=configuration.verify_ssl,
        tls_server_name=configuration.tls_server_name,
        proxy=None if bypasses_proxy(configuration.host, configuration.no_proxy or "") else proxy,
    )

    def authorization() -> str | None:
        with _plugin_errors() as plugin_errors:
            if configuration.refresh_api_key_hook is not None:
                configuration.refresh_api_key_hook(configuration)
        if plugin_errors:
            raise ConfigError(f"The kubeconfig's credential plugin failed: {one_line(plugin_errors[0], 300)}")
        header: str | None = configuration.api_key.get("BearerToken")
        return header.strip() if header else None

    return Loaded(connection, authorization)


def bypasses_proxy(server: str, no_proxy: str) -> bool:
    """Whether the server is reached directly: loopback always (as Go's clients do), and what NO_PROXY names."""
    from kubernetes.client.rest import should_bypass_proxies

    host = urlsplit(server).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.") or bool(should_bypass_proxies(server, no_proxy))


@contextmanager
def _plugin_errors() -> Iterator[list[str]]:
    """The library logs a failed plugin on the root logger and goes on without a token; here it is caught instead."""
    caught: list[str] = []

    def catch(record: logging.LogRecord) -> bool:
        if not record.pathname.endswith("kube_config.py"):
            return True
        caught.append(record.getMessage())
        return False

    root = logging.getLogger()
    silent = logging.NullHandler()  # without any handler logging.error() would set up one of its own
    root.addFilter(catch)
    root.addHandler(silent)
    try:
        yield caught
    finally:
        root.removeFilter(catch)
        root.removeHandler(silent)


def _safe(error: Exception) -> str:
    """What went wrong, without what stood in the file: the library puts whole users, tokens and all, into its texts."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        return f"not valid YAML (line {mark.line + 1})" if mark else "not valid YAML"
    if isinstance(error, OSError):
        return one_line(f"{error.strerror or type(error).__name__}: {error.filename or ''}", 200)
    if type(error).__name__ == "ConfigException":
        return one_line(re.sub(r"[{\[].*", "…", str(error), flags=re.DOTALL), 300)
    return f"it is not a kubeconfig ({type(error).__name__})"
