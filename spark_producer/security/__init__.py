"""TLS and SASL without sockets: SASL messages, TLS contexts and streams, and files of keys.

Owns: the security settings as one value, the SASL mechanisms, TLS contexts and streams, key stores, references to secrets.
Must not know: the names of options (`config`), the protocol's frames (`protocol`), sockets and threads (`network`, `broker`).
"""

from spark_producer.security.settings import OidcSettings, SaslSettings, SecuritySettings, Store, TlsSettings

__all__ = ["OidcSettings", "SaslSettings", "SecuritySettings", "Store", "TlsSettings"]
