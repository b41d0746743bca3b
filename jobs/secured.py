"""An embedded broker with TLS and a login for the quickstart: a certificate, a user, and the file by which clients connect."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from pathlib import Path

from spark_producer.broker import BrokerSecurity, LocalBroker, Users
from spark_producer.errors import ConfigError

MECHANISM = "SCRAM-SHA-512"
USER = "quickstart"
SECONDS = 60.0
"""Maximum seconds for one certificate; it takes a few hundredths of a second."""

_CERTIFICATE, _KEY, _CLIENT = "broker.crt", "broker.key", "client.properties"
_ADDRESS = "127.0.0.1"


def secured_broker(home: Path) -> tuple[LocalBroker, Path]:
    """Start an embedded broker with its files in `home`; return it, and the properties file for its clients.

    The file has the option names of Kafka's own clients, so Kafka's console tools take it too. It alone has the random password.
    Only the owner can read the file and the key.

    Raises:
        ConfigError: there is no `openssl` command, or it failed.
    """
    _make_certificate(home)
    password = secrets.token_urlsafe(24)
    security = BrokerSecurity(
        "SASL_SSL",
        certificate=home / _CERTIFICATE,
        key=home / _KEY,
        users=Users({USER: password}),
        mechanisms=(MECHANISM,),
    )
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(LocalBroker(host=_ADDRESS, security=security))
        client = _options_file(home, broker.bootstrap_servers, password)
        stack.pop_all()
    return broker, client


def _options_file(home: Path, servers: str, password: str) -> Path:
    """Write the options of clients into a file that only its owner can read."""
    login = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{password}";'
    options = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": login,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(home / _CERTIFICATE),
    }
    client = home / _CLIENT
    with os.fdopen(os.open(client, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in options.items())
    return client


def _make_certificate(home: Path) -> None:
    """Create a self-signed certificate by `openssl`, because Python's standard library cannot."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(home / _KEY))
    names = ("-subj", "/CN=pyproducer quickstart", "-addext", f"subjectAltName=IP:{_ADDRESS},DNS:localhost")
    command = ("openssl", "req", "-x509", "-days", "2", *key, *names, "-out", str(home / _CERTIFICATE))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, umask=0o077, check=False)
    except FileNotFoundError:
        raise ConfigError(
            "--secure creates a certificate by the command openssl, which is not installed: apt-get install openssl (or brew)"
        ) from None
    if done.returncode != 0:
        raise ConfigError(f"openssl could not create a certificate: {done.stderr.strip()}")
