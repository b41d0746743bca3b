"""24 scenes at a real broker: nine that must work, and fifteen wrong settings that must fail soon and name their cause.

    python -m tests.security.scenes [--spark-sink] [--write]

Every scene is a batch write by Spark with the names of Kafka's Java client. `--spark-sink` gives the same options to Spark's own
Kafka sink too, `--write` puts the table into docs/security_scenes.md.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.session import end_session, spark_session
from tests.security import ours
from tests.security.ways import WAYS, Way, read_by_librdkafka
from tests.security.wrong import WRONG
from tests.support.kafka_node import KAFKA_4
from tests.support.secured_kafka import USER, SecuredKafka

PAGE = Path(__file__).parents[2] / "docs" / "security_scenes.md"
BEGIN, END = "<!-- scenes -->", "<!-- end of scenes -->"
SOON = 15.0
"""Maximum seconds until a wrong setting is reported."""
ROWS = 100
MUST_WORK = (
    "tls-rsa",
    "tls-ec",
    "tls-ip-san",
    "mtls-ec",
    "sasl_ssl-plain",
    "sasl_ssl-scram-256",
    "sasl_ssl-scram-512",
    "sasl_ssl-oauthbearer",
    "sasl_plaintext-scram-512",
)
MUST_FAIL = {
    "plaintext to a TLS port": "TLS|SSL",
    "TLS to a plaintext port": "plaintext|handshake",
    "no login at a SASL port": "SASL",
    "a login at a plaintext port": "SASL",
    "a mechanism that is off": "SCRAM-SHA-256",
    "a wrong password of PLAIN": "Invalid username or password",
    "a wrong password of SCRAM": "invalid credentials",
    "an unknown user": "invalid credentials",
    "a token without a user": "invalid_token",
    "an unknown CA": "certification path|issue",
    "an expired certificate": "expired|NotAfter|validity",
    "a certificate of the future": "not yet|not valid before|NotBefore",
    "a certificate for another name": r"127\.0\.0\.1",
    "no client certificate": r"ssl\.keystore|bad_certificate|certificate_required",
    "a client certificate of another CA": "certificate",
}
"""Scene of `WRONG` → what names its cause, in whichever sink's words."""

MAX_SHOWN = 150
"""Maximum characters of a message in the table."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one scene."""

    held: bool
    seconds: float
    said: str


def main() -> None:
    """Play the scenes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spark-sink", action="store_true", help="also with Spark's own Kafka sink")
    parser.add_argument("--write", action="store_true", help="put the table into docs/security_scenes.md")
    chosen = parser.parse_args()
    sinks = {"pyproducer": our_options, **({"kafka": options_of_spark} if chosen.spark_sink else {})}
    with SecuredKafka(KAFKA_4) as secured:
        spark = spark_session()
        try:
            played = {name: play_all(spark, secured, name, options) for name, options in sinks.items()}
        finally:
            end_session(spark)
    table = as_table(played)
    print(table)
    if chosen.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{rest.partition(END)[2]}")


def our_options(way: Way, secured: SecuredKafka) -> dict[str, str]:
    """Return the options of our sink."""
    return ours.sink_options(way, secured, java=True)


def options_of_spark(way: Way, secured: SecuredKafka) -> dict[str, str]:
    """Return the options of Spark's own sink: the same, but Kafka's Java client has another source of unsigned tokens."""
    options = our_options(way, secured)
    provider = options.pop("oauthTokenProvider", None)
    if provider is not None:
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        claim = "other" if "nameless" in provider else "sub"
        claims = f'unsecuredLoginPrincipalClaimName="{claim}" unsecuredLoginStringClaim_{claim}="{USER}"'
        options["kafka.sasl.jaas.config"] = f"{module} required {claims};"
    return options


def play_all(
    spark: SparkSession, secured: SecuredKafka, sink: str, options: Callable[[Way, SecuredKafka], dict[str, str]]
) -> dict[str, Outcome]:
    """Every scene with one sink."""
    topic = f"scenes-{sink}"
    secured.create_topic(topic, 1)
    append(spark, sink, {"kafka.bootstrap.servers": secured.bootstrap_servers}, topic)  # the first write is slower
    outcomes = {name: play(spark, secured, sink, options(WAYS[name], secured), topic, None) for name in MUST_WORK}
    for name, cause in MUST_FAIL.items():
        outcomes[name] = play(spark, secured, sink, options(WRONG[name].way, secured), topic, cause)
    return outcomes


def play(
    spark: SparkSession, secured: SecuredKafka, sink: str, options: dict[str, str], topic: str, cause: str | None
) -> Outcome:
    """One scene: with no `cause` the rows must arrive, with one the message must name it, soon."""
    there = len(read_by_librdkafka(secured, topic))
    begun = time.monotonic()
    said = ""
    try:
        append(spark, sink, options, topic)
    except Exception as error:
        said = str(error)
    seconds = time.monotonic() - begun
    if cause is None:
        return Outcome(not said and len(read_by_librdkafka(secured, topic)) == there + ROWS, seconds, last_cause(said))
    return Outcome(
        bool(said) and re.search(cause, said, re.IGNORECASE) is not None and seconds < SOON, seconds, last_cause(said)
    )


def append(spark: SparkSession, sink: str, options: dict[str, str], topic: str) -> None:
    """A batch write of one task."""
    frame = spark.range(ROWS, numPartitions=1).selectExpr("cast(id as string) as value")
    frame.write.format(sink).options(**options).option("topic", topic).mode("append").save()


def last_cause(said: str) -> str:
    """The innermost reason in the text of an exception, on one line."""
    reasons = re.findall(r"^(?:Caused by: |spark_producer\.errors\.|org\.apache\.kafka\.\S+: )(.*)", said, re.MULTILINE)
    lines: Sequence[str] = reasons or said.splitlines()[:1] or [""]
    return lines[-1].strip()


def as_table(played: dict[str, dict[str, Outcome]]) -> str:
    """Scenes in rows, and for each sink: held or not, seconds, and what it said."""
    names = {"pyproducer": "pyproducer", "kafka": "Spark's own sink"}
    head = ["scene", *(cell for sink in played for cell in (names[sink], "s", "what it says"))]
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(" --- " for _ in head) + "|"]
    for scene in next(iter(played.values())):
        cells = [scene]
        for outcomes in played.values():
            reported = outcomes[scene]
            text = reported.said.replace("|", "\\|").replace(str(Path.home()), "~")
            cells += [
                "yes" if reported.held else "**no**",
                f"{reported.seconds:.1f}",
                re.sub(r"/\S*/", "…/", text)[:MAX_SHOWN],
            ]
        lines.append("| " + " | ".join(cells) + " |")
    counts = {sink: sum(reported.held for reported in outcomes.values()) for sink, outcomes in played.items()}
    held = "; ".join(f"{names[sink]} holds {count} of {len(played[sink])}" for sink, count in counts.items())
    return "\n".join(lines) + f"\n\n{held}.\n"


if __name__ == "__main__":
    main()
