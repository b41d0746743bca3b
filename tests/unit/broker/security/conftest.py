"""Certificates and users for the secure listener."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from spark_producer.broker import Users
from tests.unit.broker.security.secured_broker import HOST, PASSWORD


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def files(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`ca.pem`, `broker.pem` and `client.pem`, the latter two with their keys."""
    home = tmp_path_factory.mktemp("certificates")
    ca.cert_pem.write_to_path(home / "ca.pem")
    ca.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(home / "broker.pem")
    client = ca.issue_cert(common_name="ada")
    client.private_key_and_cert_chain_pem.write_to_path(home / "client.pem")
    return home


@pytest.fixture(scope="session")
def users() -> Users:
    return Users({"ada": PASSWORD, "bob": "bobs"})
