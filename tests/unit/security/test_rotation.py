"""Contexts are rebuilt when their files change, and only then."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

from spark_producer.common.secret import Secret
from spark_producer.errors import TlsFailed
from spark_producer.security import Store, TlsSettings
from spark_producer.security.rotation import reloading_client_context, reloading_server_context
from tests.support.certificates import KEY_PASSWORD, Certificates


@pytest.fixture
def renewed(certificates: Certificates, tmp_path: Path) -> Certificates:
    """Certificates of the test's own, with the files of "own"."""
    made = Certificates(tmp_path)
    made.issue("own", common_name="first")
    return made


def identity(made: Certificates) -> TlsSettings:
    return TlsSettings(identity=Store(location=str(made.file("own.pem"))), verify=False)


@pytest.mark.covers("SEC43")
def test_without_a_change_there_is_one_context(renewed: Certificates) -> None:
    kept = reloading_client_context(identity(renewed), ())
    assert kept.current() is kept.current()


@pytest.mark.covers("SEC43")
def test_a_renewed_certificate_makes_a_new_context(renewed: Certificates) -> None:
    kept = reloading_client_context(identity(renewed), ())
    before = kept.current()
    renewed.issue("own", common_name="second")
    after = kept.current()
    assert after is not before
    assert after is kept.current()
    assert after.info.own is not None
    assert "CN=second" in after.info.own.subject


@pytest.mark.covers("SEC43")
def test_a_change_that_cannot_be_used_leaves_the_former_one_and_is_reported_once(
    renewed: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    kept = reloading_client_context(identity(renewed), ())
    before = kept.current()
    renewed.file("own.pem").write_text("half of it")
    with caplog.at_level(logging.WARNING, "pyproducer"):
        assert kept.current() is before
        assert kept.current() is before
    assert len(caplog.messages) == 1
    assert "own.pem is neither PEM, JKS nor PKCS12" in caplog.messages[0]
    renewed.file("own.pem").unlink()
    assert kept.current() is before
    renewed.issue("own")
    assert kept.current() is not before


def test_the_first_context_must_be_usable(renewed: Certificates) -> None:
    kept = reloading_client_context(identity(renewed), ())
    renewed.file("own.pem").unlink()
    with pytest.raises(TlsFailed, match="cannot read"):
        kept.current()
    renewed.issue("own")
    assert kept.current()


@pytest.mark.covers("SEC43")
def test_a_link_that_leads_elsewhere_is_a_change(renewed: Certificates, tmp_path: Path) -> None:
    """Kubernetes replaces the directory of a mounted secret by changing a symbolic link."""
    for number in ("1", "2"):
        renewed.issue("own", common_name=number)
        (tmp_path / number).mkdir()
        shutil.copy(renewed.file("own.pem"), tmp_path / number)
    (tmp_path / "mount").symlink_to("1")
    kept = reloading_client_context(TlsSettings(identity=Store(location=str(tmp_path / "mount" / "own.pem"))), ())
    before = kept.current()
    (tmp_path / "new").symlink_to("2")
    (tmp_path / "new").replace(tmp_path / "mount")
    assert kept.current() is not before


@pytest.mark.covers("SEC43")
def test_a_folder_of_cas_may_get_another(renewed: Certificates, tmp_path: Path) -> None:
    folder = tmp_path / "cas"
    folder.mkdir()
    shutil.copy(renewed.ca, folder)
    kept = reloading_client_context(TlsSettings(trust=Store(location=str(folder))), ())
    assert kept.current().info.trusted == 1
    shutil.copy(renewed.other_ca, folder)
    assert kept.current().info.trusted == 2


@pytest.mark.covers("SEC43")
def test_a_key_that_a_reference_names_may_change(renewed: Certificates) -> None:
    renewed.issue("other")
    store = Store(
        pem=renewed.file("own.crt").read_text(),
        key_pem=Secret(f"${{file:{renewed.file('own.locked.key')}}}"),
        key_password=Secret(KEY_PASSWORD),
    )
    kept = reloading_client_context(TlsSettings(identity=store), [f"file:{renewed.home}/"])
    before = kept.current()
    os.utime(renewed.file("own.locked.key"), (1, 1))
    assert kept.current() is not before


@pytest.mark.covers("SEC43")
def test_a_listener_follows_its_files_too(renewed: Certificates) -> None:
    own = str(renewed.file("own.pem"))
    kept = reloading_server_context(own, own, str(renewed.ca))
    before = kept.current()
    assert kept.current() is before
    renewed.issue("own")
    assert kept.current() is not before
