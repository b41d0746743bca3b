"""Warnings about settings that make connections less secure than they look, in the log `pyproducer`, at each start."""

from __future__ import annotations

from collections.abc import Iterator

from spark_producer.common.escape import escaping_logger
from spark_producer.config.token_rules import is_loopback
from spark_producer.network.addresses import format_address
from spark_producer.network.settings import ConnectionSettings

logger = escaping_logger("pyproducer")


def warn_of_weaknesses(settings: ConnectionSettings) -> None:
    """Log a warning for each weakness."""
    for weakness in weaknesses_of(settings):
        logger.warning("%s", weakness)


def weaknesses_of(settings: ConnectionSettings) -> Iterator[str]:
    """Yield what is weak, with the option that makes it so."""
    security = settings.security
    if security.tls is not None and not security.tls.verify:
        yield (
            "kafka.enable.ssl.certificate.verification is false: certificates are not checked, so anybody on the way can pretend "
            "to be a broker, and read and change everything"
        )
    elif security.tls is not None and not security.tls.check_name:
        yield (
            "kafka.ssl.endpoint.identification.algorithm is none: names are not checked, so whoever has any certificate that is "
            "trusted can pretend to be a broker"
        )
    if security.tls is None and security.sasl is not None:
        far = [format_address(host, port) for host, port in settings.bootstrap if not is_loopback(host)]
        if far:
            yield (
                f"{security.sasl.mechanism} over SASL_PLAINTEXT to {far[0]}: {_seen(security.sasl.mechanism)}. SASL_SSL is safe"
            )


def _seen(mechanism: str) -> str:
    if mechanism.startswith("SCRAM"):
        return "all records, and what a weak password can be guessed from, can be read on the way"
    what = "the password" if mechanism == "PLAIN" else "the token"
    return f"{what} and all records can be read on the way"
