"""OpenSSL's own server does what Python's `ssl` cannot ask for: updates of keys (RFC 8446, 4.6.3) and renegotiation."""

from __future__ import annotations

import contextlib
import re
import selectors
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark_producer.errors import TlsFailed
from spark_producer.network.settings import ConnectionSettings
from spark_producer.network.tls_transport import TlsTransport
from spark_producer.network.transport import resolve
from tests.support.certificates import Certificates
from tests.unit.network.ways import DEADLINE, establish, received, tls_way, wait_for


class OpenSsl:
    """`openssl s_server`: its input lines go to the client, or are commands; its output shows every message."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: list[str] = []
        self._came = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def wait_for(self, pattern: str) -> str:
        """Return all output once a line of it matches."""
        with self._came:
            assert self._came.wait_for(lambda: re.search(pattern, "".join(self._lines)), DEADLINE), "".join(self._lines)
            return "".join(self._lines)

    def port(self) -> int:
        found = re.search(r"ACCEPT .*:(\d+)", self.wait_for(r"ACCEPT .*:\d+\n"))
        assert found is not None
        return int(found[1])

    def end(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)
        self._reader.join(DEADLINE)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._came:
                self._lines.append(line)
                self._came.notify_all()


@contextmanager
def openssl(certificates: Certificates, version: str) -> Iterator[OpenSsl]:
    command = [
        "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", str(certificates.file("broker.pem")),
        "-key", str(certificates.file("broker.key")), f"-{version}", "-msg",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        server = OpenSsl(process)
        try:
            yield server
        finally:
            server.end()


def connected(certificates: Certificates, server: OpenSsl, version: str) -> TlsTransport:
    address = resolve("127.0.0.1", server.port())[0]
    transport = tls_way(certificates, version).open(address, ConnectionSettings(()))
    assert isinstance(transport, TlsTransport)
    establish(transport)
    return transport


def line_from(transport: TlsTransport) -> bytes:
    space = memoryview(bytearray(100))
    filled = 0
    while b"\n" not in bytes(space[:filled]):
        filled += received(transport, space[filled:])
    return bytes(space[:filled])


@pytest.mark.covers("SEC33")
def test_an_update_of_keys_is_answered(certificates: Certificates) -> None:
    with openssl(certificates, "tls1_3") as server:
        transport = connected(certificates, server, "TLSv1.3")
        server.say("K")
        server.wait_for(r">>> .*KeyUpdate")
        server.say("new keys")
        assert line_from(transport) == b"new keys\n"
        assert transport.write([b"under new keys too\n"])
        server.wait_for(r"<<< .*KeyUpdate")
        server.wait_for("under new keys too")
        transport.close()


@pytest.mark.covers("SEC33")
def test_a_renegotiation_is_refused(certificates: Certificates) -> None:
    with openssl(certificates, "tls1_2") as server:
        transport = connected(certificates, server, "TLSv1.2")
        server.say("r")
        server.wait_for(r">>> .*HelloRequest")
        assert wait_for(transport, selectors.EVENT_READ)
        with contextlib.suppress(TlsFailed):  # OpenSSL ends a connection on which it may not renegotiate
            transport.receive_into(memoryview(bytearray(10)))
        output = server.wait_for(r"<<< .*Alert.*no_renegotiation")
        assert output.count("ClientHello") == 1
        transport.close()
