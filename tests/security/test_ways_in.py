"""Our producer and our sink through every kind of secured listener of real brokers; foreign clients read what they wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_producer import Producer
from spark_producer.common.error_codes import Code
from spark_producer.errors import AuthenticationFailed, BrokerError
from tests.security import ours
from tests.security.ways import CLIENT, TLS, WAYS, Way, read_by_librdkafka
from tests.spark.streams import FileStream, run
from tests.support.certificates import KEY_PASSWORD
from tests.support.kafka_node import KafkaFailed
from tests.support.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.support.waiting import retry

ROWS = 1000
STREAMED = (
    "tls-rsa",
    "mtls-ec",
    "sasl_ssl-plain",
    "sasl_ssl-scram-512",
    "sasl_ssl-oauthbearer",
    "sasl_plaintext-scram-512",
)


@pytest.mark.covers("SEC1")
@pytest.mark.parametrize(
    ("secured", "java"),
    [
        pytest.param("kafka-4", True, id="kafka-4-java's-names"),
        pytest.param("kafka-4", False, id="kafka-4-librdkafka's-names"),
        pytest.param("kafka-3.9", True, id="kafka-3.9-java's-names"),
        pytest.param("kafka-3.9", False, id="kafka-3.9-librdkafka's-names"),
    ],
    indirect=["secured"],
)
@pytest.mark.parametrize("way", WAYS)
def test_a_producer_writes_by_every_way(secured: SecuredKafka, topic: str, way: str, java: bool) -> None:
    secured.create_topic(topic, 3)
    ours.write(ours.settings(WAYS[way], secured, java=java), topic, ROWS)
    ours.assert_once_and_in_order(ours.values(secured, topic), ROWS)


@pytest.mark.covers("SEC2")
@pytest.mark.parametrize("way", WAYS)
def test_a_dataframe_is_appended_by_every_way(
    secured_4: SecuredKafka, spark: SparkSession, topic: str, way: str
) -> None:
    secured_4.create_topic(topic, 2)
    frame = spark.range(ROWS, numPartitions=2).selectExpr("cast(id as string) as value")
    options = ours.sink_options(WAYS[way], secured_4, java=True)
    frame.write.format("pyproducer").options(**options).option("topic", topic).mode("append").save()
    assert sorted(number for part in ours.values(secured_4, topic) for number in part) == list(range(ROWS))


@pytest.mark.covers("SEC3")
@pytest.mark.parametrize("way", STREAMED)
def test_a_stream_is_written_by_every_kind_of_way(
    secured_4: SecuredKafka, spark: SparkSession, topic: str, tmp_path: Path, way: str
) -> None:
    secured_4.create_topic(topic, 1)
    stream = FileStream(spark, tmp_path, "value string")
    for number in range(3):
        stream.put(f"{number}.json", [{"value": str(number)}])
    writer = stream.frame.writeStream.format("pyproducer").options(**ours.sink_options(WAYS[way], secured_4))
    run(writer.option("topic", topic).option("checkpointLocation", str(stream.checkpoint)))
    assert ours.values(secured_4, topic) == [[0, 1, 2]]


@pytest.mark.covers("SEC4")
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("listener", ["TLS", "TLSEC", "MTLS"])
def test_both_versions_of_tls_with_keys_of_rsa_and_ec(
    secured: SecuredKafka, topic: str, listener: str, version: str
) -> None:
    secured.create_topic(topic, 1)
    way = Way(listener, TLS | CLIENT | {"ssl.enabled.protocols": version})
    ours.write(ours.settings(way, secured), topic, ROWS)
    ours.assert_once_and_in_order(ours.values(secured, topic), ROWS)


def identities(secured: SecuredKafka) -> dict[str, dict[str, str]]:
    """The same certificate and key, given in other ways."""
    chain, key, locked = (Path(secured.file(f"client{end}")) for end in (".crt", ".key", ".locked.key"))
    pem = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain.read_text()}
    return {
        "text": pem | {"ssl.keystore.key": key.read_text()},
        "text on one line": {name: value.replace("\n", " ") for name, value in pem.items()}
        | {"ssl.keystore.key": key.read_text().replace("\n", " ")},
        "encrypted text": pem | {"ssl.keystore.key": locked.read_text(), "ssl.key.password": KEY_PASSWORD},
        "encrypted file": {
            "ssl.certificate.location": str(chain),
            "ssl.key.location": str(locked),
            "ssl.key.password": KEY_PASSWORD,
        },
    }


@pytest.mark.covers("SEC5")
@pytest.mark.parametrize("form", ["text", "text on one line", "encrypted text", "encrypted file"])
def test_a_client_shows_its_certificate_from_files_and_text(secured_4: SecuredKafka, topic: str, form: str) -> None:
    secured_4.create_topic(topic, 1)
    ca = Path(secured_4.file("ca.pem")).read_text()
    trust = {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.certificates": ca}
    config = {"bootstrap.servers": secured_4.address("MTLS"), **trust, **identities(secured_4)[form]}
    ours.write(config, topic, ROWS)
    ours.assert_once_and_in_order(ours.values(secured_4, topic), ROWS)


@pytest.mark.covers("SEC5")
def test_the_broker_knows_the_client_by_its_certificate(secured: SecuredKafka, topic: str) -> None:
    secured.create_topic(topic, 1)
    secured.certificates.issue("guest", ["guest.example"], common_name="guest")
    files = {"ssl.certificate.location": "{guest.crt}", "ssl.key.location": "{guest.key}"}
    config = ours.settings(Way("MTLS", TLS | files), secured)
    with pytest.raises(BrokerError, match=topic) as refused:
        ours.write(config, topic, 1)
    assert refused.value.code == Code.TOPIC_AUTHORIZATION_FAILED
    secured.allow("guest", "WRITE", topic)
    ours.write(config, topic, 1)
    assert ours.values(secured, topic) == [[0]]


@pytest.mark.covers("SEC6")
def test_a_certificate_may_be_for_an_address(secured: SecuredKafka, topic: str) -> None:
    secured.create_topic(topic, 1)
    way = WAYS["tls-ip-san"]
    assert way.address(secured).startswith("127.0.0.1:")
    ours.write(ours.settings(way, secured), topic, 1)
    assert ours.values(secured, topic) == [[0]]


@pytest.mark.covers("SEC15")
def test_a_delegation_token_logs_in(secured: SecuredKafka, topic: str, tmp_path: Path) -> None:
    secured.create_topic(topic, 1)
    token_id, hmac = delegation_token(secured, tmp_path / "client.properties")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        config = {
            "bootstrap.servers": secured.address("SASLSSL"),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": secured.file("ca.pem"),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'{module} required username="{token_id}" password="{hmac}" tokenauth="true";',
        }
        write_once_known(config, topic, mechanism)
    assert [row.value for row in read_by_librdkafka(secured, topic)] == [b"SCRAM-SHA-256", b"SCRAM-SHA-512"]


def write_once_known(config: dict[str, str], topic: str, value: str) -> None:
    """One row. A broker learns of a token only a moment after it was made: of eight logins at once three were seen to fail."""

    def write() -> None:
        with Producer(config) as producer:
            producer.send(topic, value)
            producer.flush()

    retry(write, AuthenticationFailed, "the broker knows the token", seconds=ours.SECONDS, pause=0.1)


def delegation_token(secured: SecuredKafka, properties: Path) -> tuple[str, str]:
    """A token of USER, made by Kafka's own tool."""
    given = ours.named_by_java(WAYS["sasl_ssl-scram-512"].options(secured))
    assert f'username="{USER}" password="{PASSWORD}"' in given["sasl.jaas.config"]
    properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    address = secured.address("SASLSSL")
    arguments = ["--bootstrap-server", address, "--create", "--max-life-time-period", "-1"]
    tool = "org.apache.kafka.tools.DelegationTokenCommand"
    said = secured.run_tool(tool, *arguments, "--command-config", str(properties))
    for line in said.splitlines():
        cells = line.split()
        if f"User:{USER}" in cells:
            return cells[0], cells[1]
    raise KafkaFailed(f"the tool has made no token:\n{said}")
