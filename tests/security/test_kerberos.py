"""Kerberos at MIT's KDC and real brokers: keytabs and ticket caches, renewed logins, wrong settings, Spark and the commands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from spark_producer import Producer
from spark_producer.errors import PyProducerError
from spark_producer.network.auth import tickets
from tests.security import ours
from tests.security.load import Load
from tests.support.kafka_node import KAFKA_4, KAFKA_39
from tests.support.kerberos import (
    BROKER,
    REALM,
    REAUTHENTICATION_MS,
    SERVICE,
    SHORT_SECONDS,
    SHORT_USER,
    USER,
    KerberosKafka,
    MitKdc,
    missing,
)
from tests.support.read_back import read_topic
from tests.support.scripted_kdc import SKEW, ScriptedKdc

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif(bool(missing()), reason=f"make kerberos installs {missing()}"),
    pytest.mark.xdist_group("kerberos"),
]

ROOT = Path(__file__).parents[2]
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
ROWS = 1000
PROGRAM_SECONDS = 200


@pytest.fixture(scope="module")
def kdc() -> Iterator[MitKdc]:
    with MitKdc() as running:
        yield running


@pytest.fixture(scope="module")
def kafka_4(kdc: MitKdc) -> Iterator[KerberosKafka]:
    with KerberosKafka(KAFKA_4, kdc) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_39(kdc: MitKdc) -> Iterator[KerberosKafka]:
    with KerberosKafka(KAFKA_39, kdc) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _conf(kdc: MitKdc, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)


def settings(kafka: KerberosKafka, identity: Mapping[str, str], listener: str = "KRB") -> dict[str, str]:
    return {
        "bootstrap.servers": kafka.address(listener),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        "max.block.ms": str(ours.TIMEOUT_MS),
        **identity,
    }


def by_keytab(kdc: MitKdc, principal: str = USER) -> dict[str, str]:
    return {"sasl.kerberos.principal": f"{principal}@{REALM}", "sasl.kerberos.keytab": str(kdc.keytab(principal))}


def identities(kdc: MitKdc) -> dict[str, dict[str, str]]:
    """Options and both forms of Java's, for the same user."""
    keytab, cache = kdc.keytab(USER), kdc.ticket_cache()
    return {
        "options": by_keytab(kdc),
        "keytab of Java": {
            "sasl.jaas.config": f'{MODULE} useKeyTab=true storeKey=true keyTab="{keytab}" principal="{USER}@{REALM}";'
        },
        "ticket cache of Java": {"sasl.jaas.config": f'{MODULE} useTicketCache=true ticketCache="{cache}";'},
    }


def numbers_in(kafka: KerberosKafka, topic: str) -> list[int]:
    return sorted(int(row.value or b"-1") for row in read_topic(kafka.bootstrap_servers, topic, client="confluent"))


@pytest.mark.covers("SEC45")
@pytest.mark.parametrize("identity", ["options", "keytab of Java", "ticket cache of Java"])
@pytest.mark.parametrize("version", ["kafka_4", "kafka_39"])
def test_a_producer_writes_by_keytab_and_by_ticket_cache(
    kdc: MitKdc, request: pytest.FixtureRequest, topic: str, version: str, identity: str
) -> None:
    kafka: KerberosKafka = request.getfixturevalue(version)
    kafka.create_topic(topic, 3)
    ours.write(settings(kafka, identities(kdc)[identity]), topic, ROWS)
    assert numbers_in(kafka, topic) == list(range(ROWS))


def test_the_default_ticket_cache_needs_no_identity(kdc: MitKdc, kafka_4: KerberosKafka, topic: str) -> None:
    kafka_4.create_topic(topic, 1)
    os.environ["KRB5CCNAME"] = f"FILE:{kdc.ticket_cache()}"
    ours.write(settings(kafka_4, {}), topic, 10)
    assert numbers_in(kafka_4, topic) == list(range(10))


@pytest.mark.covers("SEC45")
@pytest.mark.slow
def test_logins_are_renewed_under_load_with_tickets_of_five_seconds(
    kdc: MitKdc, kafka_4: KerberosKafka, topic: str
) -> None:
    """The broker wants a login every three seconds (KIP-368), beyond the end of two tickets: nothing is lost or doubled."""
    kafka_4.create_topic(topic, 2)
    config = settings(kafka_4, by_keytab(kdc, SHORT_USER), "KRBREAUTH") | {
        "sasl.kerberos.min.time.before.relogin": "1000"
    }
    before = kdc.requests("AS_REQ", SHORT_USER)
    end = time.monotonic() + 2 * SHORT_SECONDS + REAUTHENTICATION_MS / 1000
    with Producer(config | {"linger.ms": "5"}) as producer:
        load = Load(producer, topic)
        load.until(lambda: time.monotonic() > end)
    assert numbers_in(kafka_4, topic) == list(range(load.count))
    assert kdc.requests("AS_REQ", SHORT_USER) - before >= 3


def wrong(kdc: MitKdc, name: str) -> tuple[dict[str, str], str]:
    """Return the settings of a wrong login, and what its message must name."""
    keytab = by_keytab(kdc)
    if name == "an unknown principal":
        kdc.add("gone")
        kdc.delete("gone")
        return by_keytab(kdc, "gone"), rf"does not know gone@{REALM}\. Check the principal"
    if name == "a keytab with an old key":
        kdc.add("moved")
        kdc.change("moved", "+requires_preauth")
        kdc.new_key("moved")
        return by_keytab(kdc, "moved"), r"moved\.keytab\. Make the keytab again"
    if name == "a locked principal":
        kdc.add("locked")
        kdc.change("locked", "-allow_tix")
        return by_keytab(kdc, "locked"), f"locked locked@{REALM}"
    if name == "an expired ticket":
        cache = kdc.ticket_cache(lifetime="1s")
        time.sleep(2)  # until the ticket of one second is over
        return {"sasl.jaas.config": f'{MODULE} useTicketCache=true ticketCache="{cache}";'}, "has expired. Run kinit"
    return {
        "another service name": (
            keytab | {"sasl.kerberos.service.name": "kafk"},
            r"kafk/localhost\. Set kafka\.sasl\.kerberos\.service\.name",
        ),
        "the keytab of another": (
            keytab | {"sasl.kerberos.keytab": str(kdc.keytab(SHORT_USER))},
            rf"short\.keytab has no key of {USER}@{REALM}",
        ),
        "no keytab": (keytab | {"sasl.kerberos.keytab": "/none"}, "cannot read the keytab /none on this machine"),
        "no ticket cache": ({}, "no ticket cache. Run kinit"),
    }[name]


@pytest.mark.covers("SEC46")
@pytest.mark.parametrize(
    "name",
    [
        "an unknown principal",
        "a keytab with an old key",
        "a locked principal",
        "an expired ticket",
        "another service name",
        "the keytab of another",
        "no keytab",
        "no ticket cache",
    ],
)
def test_a_wrong_setting_is_named_at_once(kdc: MitKdc, kafka_4: KerberosKafka, topic: str, name: str) -> None:
    identity, pattern = wrong(kdc, name)
    with pytest.raises(PyProducerError) as reported, ours.soon():
        ours.write(settings(kafka_4, identity), topic, 1)
    assert re.search(pattern, str(reported.value)), str(reported.value)


def test_clocks_that_differ_are_named(
    kdc: MitKdc, kafka_4: KerberosKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedKdc(SKEW) as scripted:
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.write_conf("skewed.conf", scripted.port)))
        with pytest.raises(PyProducerError, match=r"clocks .* differ too much\. Correct them"), ours.soon():
            ours.write(settings(kafka_4, by_keytab(kdc)), topic, 1)


@pytest.mark.covers("SEC46")
def test_a_kdc_that_never_answers_ends_with_the_time_of_the_wait(
    kdc: MitKdc, kafka_4: KerberosKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library asks for a minute, on its own thread: rows fail when their time is over, and the message has the cause."""
    monkeypatch.setattr(tickets, "SLOW_S", 0.5)
    with ScriptedKdc(None) as scripted:
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.write_conf("hanging.conf", scripted.port)))
        # Not USER, whose logins other tests count: the library's thread outlives this test.
        config = settings(kafka_4, by_keytab(kdc, SHORT_USER)) | {"max.block.ms": "3000"}
        with pytest.raises(PyProducerError, match="the KDC has not answered for more than"), ours.soon():
            ours.write(config, topic, 1)
        assert scripted.requests


def test_a_new_key_of_the_broker_costs_one_more_login(kdc: MitKdc, kafka_4: KerberosKafka, topic: str) -> None:
    """A ticket for another key of the broker is replaced; while the broker has not that key, the error says where to look."""
    kafka_4.create_topic(topic, 1)
    ours.write(settings(kafka_4, by_keytab(kdc)), topic, 10)
    kdc.new_key(BROKER)
    try:
        before = kdc.requests("AS_REQ", USER)
        with pytest.raises(PyProducerError, match="its keytab must have the newest key") as reported, ours.soon():
            ours.write(settings(kafka_4, by_keytab(kdc)), topic, 1)
        assert kdc.requests("AS_REQ", USER) == before + 2
        assert f"user '{USER}@{REALM}' with GSSAPI" in str(reported.value)
    finally:
        kdc.add_key(BROKER)
    ours.write(settings(kafka_4, by_keytab(kdc)), topic, 10)


@pytest.mark.spark
def test_spark_writes_exactly_once_and_reads_and_commands_work(
    kdc: MitKdc, kafka_4: KerberosKafka, topic: str, tmp_path: Path
) -> None:
    kafka_4.create_topic(topic, 2)
    options = {f"kafka.{name}": value for name, value in settings(kafka_4, by_keytab(kdc)).items()}
    options["kafka.max.block.ms"] = "60000"
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"options": options, "topic": topic, "home": str(tmp_path)}))
    program = [sys.executable, "-m", "tests.security.kerberos_program", str(plan)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"rows": 100, "distinct": 100}
    assert numbers_in(kafka_4, topic) == list(range(100))
    (tmp_path / "client.properties").write_text(
        "".join(f"{name}={value}\n" for name, value in settings(kafka_4, by_keytab(kdc)).items())
    )
    tail = [sys.executable, "-m", "spark_producer", "tail", topic, "--from-beginning", "--until-end", "--json"]
    reported = subprocess.run(
        [*tail, "--command-config", str(tmp_path / "client.properties")],
        cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False,
    )  # fmt: skip
    values = [json.loads(line)["value"] for line in reported.stdout.splitlines()]
    assert sorted(map(int, values)) == list(range(100)), reported.stderr
