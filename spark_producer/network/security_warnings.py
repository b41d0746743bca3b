"""Log warnings about settings that make connections less secure than they look, each time a client is created."""

from __future__ import annotations

from collections.abc import Iterator

from spark_producer.common.addresses import format_address
from spark_producer.common.escape import escaping_logger
from spark_producer.config.token_rules import is_loopback
from spark_producer.network.settings import ConnectionSettings

logger = escaping_logger("pyproducer")


def warn_of_weaknesses(settings: ConnectionSettings) -> None:
    """Log a warning for each weakness."""
    for weakness in weaknesses_of(settings):
        logger.warning("%s", weakness)


def weaknesses_of(settings: ConnectionSettings) -> Iterator[str]:
    """Yield a message for each weakness, with the option that causes it."""
    security = settings.security
    if security.tls is not None and not security.tls.verify:
        yield (
            "kafka.enable.ssl.certificate.verification is false: certificates are not checked, so anyone on the network path can "
            "impersonate a broker, and read and change all data"
        )
    elif security.tls is not None and not security.tls.check_name:
        yield (
            "kafka.ssl.endpoint.identification.algorithm is none: host names are not checked, so anyone with a trusted "
            "certificate can impersonate a broker"
        )
    if security.tls is None and security.sasl is not None:
        far = [format_address(host, port) for host, port in settings.bootstrap if not is_loopback(host)]
        if far:
            yield (
                f"{security.sasl.mechanism} over SASL_PLAINTEXT to {far[0]}: {_exposed(security.sasl.mechanism)}. Use SASL_SSL"
            )


def _exposed(mechanism: str) -> str:
    if mechanism.startswith("SCRAM"):
        return "all records, and data from which a weak password can be guessed, can be read on the network path"
    if mechanism == "GSSAPI":
        return "all records can be read and changed on the network path"
    secret = "the password" if mechanism == "PLAIN" else "the token"
    return f"{secret} and all records can be read on the network path"
