"""How a client logs in: passwords, and tokens, which a thread of their own fetches from an endpoint, a function or Amazon.

Owns: what a login needs before a connection is begun. Must not know: connections and requests.
"""

from spark_producer.network.auth.logins import Logins, make_logins

__all__ = ["Logins", "make_logins"]
