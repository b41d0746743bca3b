"""Rules between the options of TLS: what contradicts, what is missing. Ids (tests/ids.md): SEC."""

from __future__ import annotations

import pytest

from spark_producer.config.tls_rules import SUITES_12, SUITES_13, protocols_and_suites
from tests.unit.config.secured import CANARY, PEM, SSL, config, refusal


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ssl.keystore.key": CANARY}, "key (or kafka.ssl.key.pem) needs kafka.ssl.keystore.certificate.chain"),
        ({"ssl.certificate.pem": PEM}, "chain (or kafka.ssl.certificate.pem) needs kafka.ssl.keystore.key"),
        ({"ssl.certificate.location": "c"}, "ssl.certificate.location needs kafka.ssl.key.location"),
        ({"ssl.key.location": "k"}, "kafka.ssl.key.location needs kafka.ssl.certificate.location"),
        ({"ssl.keystore.location": "k", "ssl.keystore.key": CANARY, "ssl.certificate.pem": PEM}, "are both set"),
        ({"ssl.keystore.location": "k", "ssl.certificate.location": "c", "ssl.key.location": "k"}, "are both set"),
        ({"ssl.key.pem": CANARY, "ssl.certificate.pem": PEM, "ssl.certificate.location": "c", "ssl.key.location": "k"},
         "kafka.ssl.keystore.key (or kafka.ssl.key.pem) and kafka.ssl.key.location are both set"),
        ({"ssl.keystore.password": CANARY}, "kafka.ssl.keystore.password needs kafka.ssl.keystore.location"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": "k", "ssl.keystore.password": CANARY},
         "kafka.ssl.keystore.password is set, but kafka.ssl.keystore.type is PEM, which has none"),
        ({"ssl.key.pem": CANARY, "ssl.certificate.pem": PEM, "ssl.keystore.password": CANARY},
         "which is not set. Set both, or neither"),
        ({"ssl.key.pem": CANARY, "ssl.certificate.pem": PEM, "ssl.keystore.type": "jks"},
         "kafka.ssl.keystore.key (or kafka.ssl.key.pem) is PEM text, but kafka.ssl.keystore.type is JKS"),
        ({"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "k"},
         "PKCS12 keystore, which needs kafka.ssl.keystore.password"),
        ({"ssl.key.password": CANARY}, "kafka.ssl.key.password is set, but no key"),
        ({"ssl.truststore.location": "t", "ssl.ca.pem": PEM}, "are both set"),
        ({"ssl.truststore.password": CANARY}, "kafka.ssl.truststore.password needs kafka.ssl.truststore.location"),
        ({"ssl.truststore.password": CANARY, "ssl.ca.pem": PEM}, "needs kafka.ssl.truststore.location"),
        ({"ssl.truststore.password": CANARY, "ssl.truststore.type": "PEM", "ssl.ca.location": "t"}, "is PEM, which has none"),
        ({"ssl.truststore.type": "PKCS12", "ssl.ca.pem": PEM}, "is PEM text, but kafka.ssl.truststore.type is PKCS12"),
        ({"ssl.keystore.type": "JCEKS", "ssl.keystore.location": "k"}, "must be one of PEM, PKCS12, JKS, not 'JCEKS'"),
    ],
)  # fmt: skip
def test_contradictions_of_stores_are_those_of_java(options: dict[str, str], said: str) -> None:
    assert said in refusal(SSL, options)


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    "options",
    [
        {
            "ssl.keystore.location": "k",
            "ssl.keystore.password": "p",
            "ssl.keystore.type": "jks",
            "ssl.key.password": "p",
        },
        {"ssl.keystore.location": "k"},
        {"ssl.keystore.location": "k", "ssl.key.password": "p", "ssl.keystore.type": "PEM"},
        {"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": PEM, "ssl.key.password": "p"},
        {"ssl.certificate.location": "c", "ssl.key.location": "k", "ssl.key.password": "p"},
        {"ssl.truststore.location": "t", "ssl.truststore.type": "JKS"},
    ],
)
def test_what_java_takes_is_taken(options: dict[str, str]) -> None:
    assert config(SSL, options).security_protocol == "SSL"


ALL_13 = ",".join(SUITES_13)


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "protocols", "suites"),
    [
        ({}, "12 13", ()),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "13", ()),
        ({"ssl.enabled.protocols": " tlsv1.3 , TLSv1.2,"}, "12 13", ()),
        ({"ssl.protocol": "TLSv1.2"}, "12", ()),
        ({"ssl.protocol": "TLS"}, "12 13", ()),
        ({"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": SUITES_12[1].lower()}, "12", SUITES_12[1:2]),
        ({"ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": f"{SUITES_13[0]},{SUITES_12[1]}"}, "12",
         (SUITES_13[0], SUITES_12[1])),
        ({"ssl.cipher.suites": f"{ALL_13},{SUITES_12[0]}"}, "12 13", (*SUITES_13, SUITES_12[0])),
        ({"ssl.cipher.suites": ALL_13}, "13", SUITES_13),
    ],
)  # fmt: skip
def test_versions_and_suites(options: dict[str, str], protocols: str, suites: tuple[str, ...]) -> None:
    expected = tuple(f"TLSv1.{version[1]}" for version in protocols.split())
    assert protocols_and_suites(config(SSL, options)) == (expected, suites)


@pytest.mark.covers("SEC11")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"ssl.enabled.protocols": "TLSv1.2,TLSv1.1"},
            "contains 'TLSv1.1'; the supported versions are TLSv1.2 and TLSv1.3",
        ),
        ({"ssl.enabled.protocols": "SSLv3"}, "contains 'SSLv3'"),
        ({"ssl.enabled.protocols": " , "}, "is empty. Name TLSv1.2, TLSv1.3 or both"),
        ({"ssl.protocol": "TLSv1.1"}, "kafka.ssl.protocol must be one of TLSv1.3, TLSv1.2, TLS, not 'TLSv1.1'"),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "has only TLSv1.3"),
        (
            {"ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"},
            "contains 'ECDHE-RSA-AES256-GCM-SHA384'; the supported suites are",
        ),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_GCM_SHA256"}, "the supported suites are TLS_AES_256_GCM_SHA384"),
        ({"ssl.cipher.suites": SUITES_12[0]}, "leaves out suites of TLS 1.3, which cannot be switched off"),
        ({"ssl.cipher.suites": f"{SUITES_13[0]},{SUITES_12[0]}"}, "or set kafka.ssl.enabled.protocols to TLSv1.2"),
        ({"ssl.cipher.suites": ALL_13, "ssl.enabled.protocols": "TLSv1.2"}, "has no suite of TLSv1.2"),
    ],
)
def test_versions_and_suites_that_cannot_be(options: dict[str, str], said: str) -> None:
    assert said in refusal(SSL, options)
