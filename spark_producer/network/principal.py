"""What brokers know us as, for messages about missing rights."""

from __future__ import annotations

from spark_producer.common.escape import for_log
from spark_producer.security import SecuritySettings


def principal(security: SecuritySettings) -> str:
    """Return a text such as "user 'app'". Who a certificate or token stands for is the broker's decision, so these are named."""
    if security.sasl is not None:
        if security.sasl.token_auth:
            return f"the owner of the delegation token {for_log(security.sasl.username, limit=None)!r}"
        return (
            f"user {for_log(security.sasl.username, limit=None)!r}"
            if security.sasl.username
            else "the user whom the token names"
        )
    if security.tls is not None and security.tls.identity is not None:
        where = security.tls.identity.location
        return f"the subject of the certificate in {where}" if where else "the subject of our certificate"
    return "user 'ANONYMOUS' (we do not log in)"
