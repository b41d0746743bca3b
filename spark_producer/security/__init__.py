"""TLS and SASL without sockets: SASL messages, TLS contexts and streams, and files of keys.

Owns: the security settings as one value, the SASL mechanisms, TLS contexts and streams, key stores, references to secrets.
Must not know: the names of options (`config`), the protocol's frames (`protocol`), sockets and threads (`network`, `broker`).

A new SASL mechanism is a generator in a module here, and an entry of the table in `sasl_login`. It is also a choice in
`config.security_table` with its credentials in `config.sasl_rules`, and for the embedded broker in `broker.security.mechanisms`.
"""

from spark_producer.security.settings import (
    KerberosSettings,
    OidcSettings,
    SaslSettings,
    SecuritySettings,
    Store,
    TlsSettings,
)

__all__ = ["KerberosSettings", "OidcSettings", "SaslSettings", "SecuritySettings", "Store", "TlsSettings"]
