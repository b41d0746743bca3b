"""TLS and SASL without any I/O on sockets: what a login says, what a TLS stream makes of bytes, which files hold keys.

Owns: the settings of security as one value, the SASL mechanisms, TLS contexts and streams, key stores, references to secrets.
Must not know: options and their names in a configuration (`config`), the frames of the protocol (`protocol`), sockets and threads
(`network`, `broker`).
"""

from spark_producer.security.settings import OidcSettings, SaslSettings, SecuritySettings, Store, TlsSettings

__all__ = ["OidcSettings", "SaslSettings", "SecuritySettings", "Store", "TlsSettings"]
