"""The settings of a TLS context: trust, checks, versions and suites."""

from __future__ import annotations

import re
import ssl

import pytest

from spark_producer.errors import ConfigError, TlsFailed
from spark_producer.security import Store, TlsSettings
from spark_producer.security.cipher_suites import OPENSSL_NAMES, SUITES_OF_1_3, choose
from spark_producer.security.contexts import client_context, server_context
from spark_producer.security.tls_stream import TlsStream
from tests.support.certificates import Certificates
from tests.unit.security.memory_peer import server, shake

RSA, EC = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
ALL_OF_1_3 = tuple(sorted(SUITES_OF_1_3))


def agreed(certificates: Certificates, settings: TlsSettings, host: str = "localhost") -> tuple[str, str]:
    """The version and suite that a client gets from a server that takes all."""
    client, peer = TlsStream(client_context(settings, ()), host), server(certificates)
    shake(client, peer)
    name, version, _ = peer.tls.cipher() or ("", "", 0)
    return version, name


def trusting(certificates: Certificates) -> TlsSettings:
    return TlsSettings(trust=Store(location=str(certificates.ca)))


def test_a_client_is_strict_where_java_is_and_no_further(certificates: Certificates) -> None:
    context = client_context(trusting(certificates), ())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT  # Java takes CAs without an identifier of their key


def test_without_a_truststore_those_of_the_system_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[ssl.Purpose] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda self, purpose: loaded.append(purpose))
    client_context(TlsSettings(), ())
    assert loaded == [ssl.Purpose.SERVER_AUTH]
    client_context(TlsSettings(verify=False), ())
    assert len(loaded) == 1


def test_a_truststore_may_hold_the_brokers_own_certificate_alone(certificates: Certificates) -> None:
    settings = TlsSettings(trust=Store(location=str(certificates.file("broker.crt"))))
    assert agreed(certificates, settings)[0] == "TLSv1.3"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1"])
def test_names_and_addresses_are_checked(certificates: Certificates, host: str) -> None:
    assert agreed(certificates, trusting(certificates), host)


@pytest.mark.parametrize("host", ["elsewhere.example.org", "127.0.0.9", "my_broker"])
def test_the_name_or_all_may_be_left_unchecked(certificates: Certificates, host: str) -> None:
    assert agreed(certificates, TlsSettings(trust=Store(location=str(certificates.ca)), check_name=False), host)
    assert agreed(certificates, TlsSettings(verify=False), host)


def test_versions_and_suites_are_those_that_were_named(certificates: Certificates) -> None:
    trust = Store(location=str(certificates.ca))
    assert agreed(certificates, TlsSettings(trust=trust, protocols=("TLSv1.2",)))[0] == "TLSv1.2"
    assert agreed(certificates, TlsSettings(trust=trust, protocols=("TLSv1.3",)))[0] == "TLSv1.3"
    only = TlsSettings(trust=trust, cipher_suites=(EC,))
    assert agreed(certificates, only) == ("TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256")
    assert agreed(certificates, TlsSettings(trust=trust, cipher_suites=(EC, *ALL_OF_1_3)))[0] == "TLSv1.3"


def test_every_suite_is_one_of_this_openssl() -> None:
    for name in OPENSSL_NAMES:
        context = client_context(TlsSettings(verify=False, protocols=("TLSv1.2",), cipher_suites=(name,)), ())
        assert OPENSSL_NAMES[name] in {cipher["name"] for cipher in context.get_ciphers()}


@pytest.mark.parametrize(
    ("protocols", "suites", "versions", "openssl"),
    [
        (("TLSv1.3", "TLSv1.2"), (), ("TLSv1.2", "TLSv1.3"), ""),
        (("TLSv1.2", "TLSv1.3"), (RSA, EC), ("TLSv1.2",), f"{OPENSSL_NAMES[RSA]}:{OPENSSL_NAMES[EC]}"),
        (("TLSv1.2", "TLSv1.3"), ALL_OF_1_3, ("TLSv1.3",), ""),
        (("TLSv1.2", "TLSv1.3"), (*ALL_OF_1_3, EC), ("TLSv1.2", "TLSv1.3"), OPENSSL_NAMES[EC]),
        (("TLSv1.2",), (EC, ALL_OF_1_3[0]), ("TLSv1.2",), OPENSSL_NAMES[EC]),
    ],
)
def test_nothing_is_negotiated_that_was_not_named(
    protocols: tuple[str, ...], suites: tuple[str, ...], versions: tuple[str, ...], openssl: str
) -> None:
    assert choose(protocols, suites) == (versions, openssl)


@pytest.mark.parametrize(
    ("protocols", "suites", "message"),
    [
        (("TLSv1.1", "TLSv1.2"), (), r"TLS does not support TLSv1\.1: supported are the protocols"),
        ((), (), "TLS does not support an empty list of protocols"),
        (("TLSv1.2",), ("TLS_RSA_WITH_AES_128_CBC_SHA",), "TLS does not support TLS_RSA_WITH_AES_128_CBC_SHA"),
        (("TLSv1.2", "TLSv1.3"), (EC, ALL_OF_1_3[0]), f"Add {ALL_OF_1_3[1]}, {ALL_OF_1_3[2]}, or set ssl.enabled"),
        (("TLSv1.3",), (EC,), r"no suite of ssl.cipher.suites belongs to TLSv1\.3"),
        (("TLSv1.2",), ALL_OF_1_3, r"no suite of ssl.cipher.suites belongs to TLSv1\.2"),
    ],
)
def test_suites_that_cannot_be_kept_to_are_errors(
    protocols: tuple[str, ...], suites: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        choose(protocols, suites)


def test_a_listener_asks_for_certificates_only_if_it_has_cas_for_them(certificates: Certificates) -> None:
    broker = str(certificates.file("broker.pem"))
    assert server_context(broker, broker).verify_mode is ssl.CERT_NONE
    assert server_context(broker, broker, str(certificates.ca)).verify_mode is ssl.CERT_REQUIRED


def test_a_listeners_files_are_named_by_its_own_options(certificates: Certificates) -> None:
    chain, key = str(certificates.file("broker.crt")), str(certificates.file("broker.key"))
    for files, option in (
        (("/absent", key, None), "certificate (--tls-cert)"),
        ((chain, "/absent", None), "key (--tls-key)"),
        ((chain, key, "/absent"), "client CA (--tls-client-ca)"),
    ):
        with pytest.raises(TlsFailed, match=f"^{re.escape(option)}: cannot read /absent on this machine: "):
            server_context(*files)
    with pytest.raises(TlsFailed, match=re.escape("broker.crt. Give its file as key (--tls-key)")):
        server_context(chain, chain)
