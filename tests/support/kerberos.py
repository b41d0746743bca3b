"""MIT's KDC (Debian's krb5-kdc) as a child process, with keytabs and ticket caches; and a Kafka that trusts it.

Owns: the realm, the files of Kerberos, the listeners with GSSAPI. Must not know: the package under test, Spark.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import jvm_options
from tests.support.ports import free_ports
from tests.support.processes import ChildProcess
from tests.support.waiting import wait_until

REALM = "TEST.PYPRODUCER"
SERVICE = "kafka"
HOST = "localhost"
BROKER = f"{SERVICE}/{HOST}"
USER = "app"
"""May do everything; `short` is the same with tickets of five seconds."""
SHORT_USER, SHORT_SECONDS = "short", 5
REAUTHENTICATION_MS = 3000
SECONDS = 30.0
LISTENERS = {"KRB": "SASL_PLAINTEXT", "KRBREAUTH": "SASL_PLAINTEXT"}

_SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")


def missing() -> str:
    """Return what these tests lack on this machine; empty if they can run. `make kerberos` installs it."""
    programs = [name for name in _PROGRAMS if shutil.which(name, path=_SBIN) is None]
    return ", ".join(programs + ([] if importlib.util.find_spec("gssapi") else ["gssapi"]))


class MitKdc:
    """Context manager: a KDC for `REALM` on this machine. Its principals are made on demand."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pyproducer-kdc-")
        self.home = Path(self._folder.name)
        (self._port,) = free_ports(1)
        self.environment = {
            "KRB5_CONFIG": str(self.write_conf("krb5.conf", self._port)),
            "KRB5_KDC_PROFILE": str(self.home / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.home / 'default-cache'}",
        }
        self._process: ChildProcess | None = None

    def write_conf(self, name: str, port: int, realm: str = REALM) -> Path:
        """Write a krb5.conf whose KDC of a realm listens on `port`."""
        path = self.home / name
        path.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            f"[realms]\n {realm} = {{\n  kdc = 127.0.0.1:{port}\n }}\n"
        )
        return path

    def __enter__(self) -> Self:
        (self.home / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self._port}\n kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self.home}/principal\n  key_stash_file = {self.home}/stash\n"
            f"  acl_file = {self.home}/acl\n  max_life = 10h\n"
            "  supported_enctypes = aes256-cts:normal aes128-cts:normal\n }\n"
            f"[logging]\n kdc = FILE:{self.home}/kdc.log\n"
        )
        self._run("kdb5_util", "create", "-s", "-P", "master")
        for name in (USER, SHORT_USER, BROKER):
            self.add(name)
        self.change(SHORT_USER, "-maxlife", f"{SHORT_SECONDS} seconds")
        self._process = ChildProcess([_path("krb5kdc"), "-n"], self.home / "output.log", self.environment)
        try:
            wait_until(self._listens, seconds=SECONDS, what="the KDC to listen")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the KDC and remove its files."""
        if self._process is not None:
            self._process.kill()
        self._folder.cleanup()

    def add(self, principal: str) -> None:
        """Make a principal with a random key, and its keytab."""
        self._admin("addprinc", "-randkey", principal)
        self.add_key(principal)

    def add_key(self, principal: str) -> None:
        """Give a principal another key, which is added to its keytab."""
        self._admin("ktadd", "-k", str(self.keytab(principal)), principal)

    def change(self, principal: str, *arguments: str) -> None:
        """Change a principal by `modprinc`."""
        self._admin("modprinc", *arguments, principal)

    def new_key(self, principal: str) -> None:
        """Give a principal another key, which its keytab does not have."""
        self._admin("cpw", "-randkey", principal)

    def delete(self, principal: str) -> None:
        """Delete a principal; its keytab stays."""
        self._admin("delprinc", "-force", principal)

    def keytab(self, principal: str) -> Path:
        """Path of a keytab."""
        return self.home / f"{principal.replace('/', '-')}.keytab"

    def ticket_cache(self, principal: str = USER, lifetime: str = "1h") -> Path:
        """Return a new ticket cache, made by kinit."""
        path = self.home / f"{principal}-{lifetime}.cache"
        self._run("kinit", "-k", "-t", str(self.keytab(principal)), "-l", lifetime, "-c", f"FILE:{path}", principal)
        return path

    def requests(self, kind: str, principal: str) -> int:
        """Return how often a principal has got a ticket: AS_REQ for its own, TGS_REQ for a broker."""
        log = (self.home / "kdc.log").read_text().splitlines()
        return sum(f" {kind} " in line and "ISSUE" in line and f" {principal}@{REALM} for " in line for line in log)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def _admin(self, *query: str) -> None:
        quoted = (f'"{part}"' if " " in part else part for part in query)
        self._run("kadmin.local", "-q", " ".join(quoted))

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [_path(program), *arguments],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _path(program: str) -> str:
    found = shutil.which(program, path=_SBIN)
    assert found is not None, f"{program} is missing: make kerberos"
    return found


class KerberosKafka(KafkaCluster):
    """One node with listeners for GSSAPI; the plain one is that of `KafkaCluster`."""

    def __init__(self, version: str, kdc: MitKdc) -> None:
        conf = f"-Djava.security.krb5.conf={kdc.environment['KRB5_CONFIG']}"
        super().__init__(version, jvm=(*jvm_options(version), conf))
        self._keytab = kdc.keytab(BROKER)
        self._listener_ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))

    def address(self, listener: str) -> str:
        """Return the address of a listener."""
        return f"{HOST}:{self._listener_ports[listener]}"

    def _node_settings(self, node: int) -> dict[str, str]:
        settings: dict[str, str] = super()._node_settings(node)
        module = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{self._keytab}" principal="{BROKER}@{REALM}";'
        )
        for name, protocol in LISTENERS.items():
            address = self.address(name)
            settings["listeners"] += f",{name}://{address}"
            settings["advertised.listeners"] += f",{name}://{address}"
            settings["listener.security.protocol.map"] += f",{name}:{protocol}"
            own: Mapping[str, str] = {
                "sasl.enabled.mechanisms": "GSSAPI",
                "gssapi.sasl.jaas.config": module,
                "gssapi.sasl.kerberos.service.name": SERVICE,
            }
            settings |= {f"listener.name.{name.lower()}.{key}": value for key, value in own.items()}
        settings["listener.name.krbreauth.gssapi.connections.max.reauth.ms"] = str(REAUTHENTICATION_MS)
        settings["sasl.kerberos.service.name"] = SERVICE
        return settings
