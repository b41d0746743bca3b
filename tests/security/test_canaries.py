"""No secret shows: not in output, logs at DEBUG, event log, UI, checkpoints, exceptions with variables, or command lines."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from spark_producer.config import data_source_name
from tests.fakes.token_endpoint import Asked, Reply, TokenEndpoint, token_reply
from tests.security import ours
from tests.security.ways import CLIENT, TLS, Way, login, unsigned_token
from tests.security.wrong import WRONG_PASSWORD
from tests.support.certificates import KEY_PASSWORD
from tests.support.secured_kafka import PASSWORD, USER, SecuredKafka

SECONDS = 400
ROOT = Path(__file__).parents[2]
CLIENT_ID, CLIENT_SECRET = "the-client", "client-secret-81c2"
SENT_SECRET = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
BAD_WAYS = 7
JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule"
SQL_USER, SQL_PASSWORD = "sql", "sql-pw-66d0"
FROM_ENVIRONMENT, FROM_FILE = "environment-pw-2f19", "file-pw-8b7e"
DEBUG_LOG = """\
rootLogger.level = DEBUG
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {home}/jvm.log
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n
"""
IN_PYTHON = (
    "import logging\nlogging.basicConfig(level=logging.DEBUG)\nlogging.getLogger('py4j').setLevel(logging.WARNING)\n"
)


@dataclass
class Traces:
    """All files that the program has left, and the texts that must not be in them."""

    home: Path
    canaries: dict[str, str]

    def hits(self, name: str) -> list[str]:
        """Files that hold a canary."""
        wanted = self.canaries[name].encode()
        # Spark may still remove its own files, of which `os.walk` does not complain.
        files = (Path(folder, file) for folder, _, names in os.walk(self.home) for file in names)
        return sorted(
            str(path.relative_to(self.home)) for path in files if path.is_file() and wanted in path.read_bytes()
        )


def give_token(asked: Asked) -> Reply:
    """A token of USER for the client that knows its secret."""
    if asked.headers["Authorization"] != f"Basic {SENT_SECRET}":
        return Reply(401)
    token, _ = unsigned_token()
    return token_reply(token)


def inner_line(pem: str) -> str:
    """A line of the secret part of a key."""
    return pem.splitlines()[2]


def good_options(secured: SecuredKafka, inputs: Path, endpoint: str) -> dict[str, dict[str, str]]:
    password = inputs / "password"
    password.write_text(f"{FROM_FILE}\n")
    secured.add_user("by-environment", FROM_ENVIRONMENT)
    secured.add_user("by-file", FROM_FILE)
    for user in ("by-environment", "by-file"):
        secured.allow(user, "ALL", "canaries")
    scram = login("SASL_SSL", "SCRAM-SHA-512")
    allowed = {"secretsAllow": f"env:CANARY_*,file:{inputs}/"}
    key = Path(secured.file("client.locked.key")).read_text()
    chain = Path(secured.file("client.crt")).read_text()
    by_environment = {"sasl.username": "by-environment", "sasl.password": "${env:CANARY_PASSWORD}"}
    by_file = {"sasl.jaas.config": f'{JAAS} required username="by-file" password="${{file:{password}}}";'}
    oidc = {
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.oauthbearer.client.credentials.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
    }
    anonymous = {
        name: value for name, value in scram.items() if not name.startswith(("sasl.username", "sasl.password"))
    }
    ways = {
        "password": Way("SASLSSL", scram),
        "jaas": Way("SASLSSL", ours.named_by_java(scram) | {"ssl.truststore.location": "{ca.pem}"}),
        "environment": Way("SASLSSL", scram | by_environment | allowed),
        "file": Way("SASLSSL", anonymous | by_file | allowed),
        "oidc": Way("SASLSSL", anonymous | {"sasl.mechanism": "OAUTHBEARER"} | oidc),
        "key-text": Way(
            "MTLS",
            TLS
            | {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": chain,
                "ssl.keystore.key": key,
                "ssl.key.password": KEY_PASSWORD,
            },
        ),
    }
    return {name: own(way, secured) for name, way in ways.items()}


def own(way: Way, secured: SecuredKafka) -> dict[str, str]:
    """Options without the provider of tokens that other tests have."""
    return {
        data_source_name(name): value
        for name, value in ({"bootstrap.servers": way.address(secured)} | way.options(secured)).items()
    }


def bad_options(secured: SecuredKafka) -> dict[str, dict[str, str]]:
    wrong = login("SASL_SSL", "SCRAM-SHA-512", password=WRONG_PASSWORD)
    named_by_java = ours.named_by_java(wrong) | {"ssl.truststore.location": "{ca.pem}"}
    broken = {**named_by_java, "sasl.jaas.config": f"{JAAS} required username={USER} password={WRONG_PASSWORD} ?"}
    locked = {"ssl.key.location": "{client.locked.key}", "ssl.key.password": WRONG_PASSWORD}
    ways = {
        "password": Way("SASLSSL", wrong),
        "plain": Way("SASLSSL", login("SASL_SSL", "PLAIN", password=WRONG_PASSWORD)),
        "jaas": Way("SASLSSL", named_by_java),
        "grammar": Way("SASLSSL", broken),
        "twice": Way("SASLSSL", named_by_java | {"sasl.username": USER, "sasl.password": PASSWORD}),
        "key-password": Way("MTLS", TLS | CLIENT | locked),
        "number": Way("SASLSSL", wrong | {"linger.ms": "soon"}),
    }
    return {name: own(way, secured) for name, way in ways.items()}


def run_program(home: Path, inputs: Path, plan: Mapping[str, object]) -> None:
    """Run it in a process of its own; all that it writes goes to `home`, and all that it needs to know lies in `inputs`."""
    (home / "log4j2.properties").write_text(DEBUG_LOG.format(home=home))
    (inputs / "sitecustomize.py").write_text(IN_PYTHON)
    (inputs / "plan.json").write_text(json.dumps(plan))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))},
        "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"],
        "PYTHONPATH": os.pathsep.join([str(inputs), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(home),
        "CANARY_PASSWORD": FROM_ENVIRONMENT,
    }
    with (home / "output.txt").open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "tests.security.canary_program", str(inputs / "plan.json")],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
    said = (home / "output.txt").read_text()
    assert done.returncode == 0, said[-6000:]
    assert "the program has come to its end" in said


@pytest.fixture(scope="module")
def traces(secured_4: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Traces:
    """The files of the program, after it has done everything once."""
    home, inputs = tmp_path_factory.mktemp("canaries"), tmp_path_factory.mktemp("inputs")
    secured_4.create_topic("canaries", 1)
    secured_4.add_user(SQL_USER, SQL_PASSWORD)
    secured_4.allow(SQL_USER, "ALL", "canaries")
    jaas = f'{JAAS} required username="{SQL_USER}" password="{SQL_PASSWORD}";'
    table = Way(
        "SASLSSL", {"security.protocol": "SASL_SSL", "ssl.ca.location": "{ca.pem}", "sasl.mechanism": "SCRAM-SHA-512"}
    )
    with contextlib.closing(TokenEndpoint(give_token)) as endpoint:
        plan = {
            "home": str(home),
            "good": good_options(secured_4, inputs, endpoint.url),
            "bad": bad_options(secured_4),
            "streamed": ["password", "jaas"],
            "table": own(table, secured_4) | {"kafka.sasl.jaas.config": jaas},
            "key": Path(secured_4.file("client-rsa.key")).read_text(),
            "topic": "canaries",
            "absent": "no-such-topic",
        }
        run_program(home, inputs, plan)
    key = Path(secured_4.file("client.locked.key")).read_text()
    canaries = {
        "password": PASSWORD,
        "wrong password": WRONG_PASSWORD,
        "from the environment": FROM_ENVIRONMENT,
        "from a file": FROM_FILE,
        "client secret": CLIENT_SECRET,
        "client secret as it is sent": SENT_SECRET,
        "password of the key": KEY_PASSWORD,
        "text of the key": inner_line(key),
        "in SQL": SQL_PASSWORD,
        "key in SQL": inner_line(Path(secured_4.file("client-rsa.key")).read_text()),
    }
    return Traces(home, canaries)


SECRETS = [
    "password",
    "wrong password",
    "from the environment",
    "from a file",
    "client secret",
    "client secret as it is sent",
    "password of the key",
    "text of the key",
]


@pytest.mark.covers("SEC40")
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_shows_nowhere(traces: Traces, name: str) -> None:
    assert traces.hits(name) == []


@pytest.mark.covers("SEC40")
def test_sql_is_the_exception_that_the_page_names(traces: Traces) -> None:
    """Spark's parser logs each statement at DEBUG as it is written: no secret belongs into SQL."""
    assert traces.hits("in SQL") == ["jvm.log"]


@pytest.mark.covers("SEC40")
def test_there_was_something_to_look_at(traces: Traces) -> None:
    """The traces hold what may be seen, so they would hold what may not."""
    assert any("events" in hit for hit in Traces(traces.home, {"event": "SparkListenerApplicationStart"}).hits("event"))
    for log, line in (("jvm.log", "DEBUG"), ("output.txt", "WARNING:pyproducer")):
        assert log in Traces(traces.home, {"log": line}).hits("log")
    assert len(list((traces.home / "exceptions").iterdir())) == BAD_WAYS * 3 + 2 * 2
    assert any("ui-" in hit for hit in Traces(traces.home, {"ui": "pyproducer"}).hits("ui"))
    assert (traces.home / "command-lines.txt").read_text().count("canary_program") >= 1
