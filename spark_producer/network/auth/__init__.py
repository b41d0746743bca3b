"""The logins of a client: passwords, and tokens that a background thread fetches from an endpoint, a function or AWS.

Owns: the credentials that a login needs before a connection begins. Must not know: connections and requests.
"""

from spark_producer.network.auth.logins import Logins, make_logins

__all__ = ["Logins", "make_logins"]
