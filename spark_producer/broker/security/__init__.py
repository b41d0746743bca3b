"""What stands between a new connection and the broker's requests: TLS, the login, and what peers may do before it.

Owns: the settings of the secure listener, the keys of its users, the server's side of the SASL mechanisms, the state of each
login, the bounds of peers that have not logged in.
Must not know: topics and records, and which requests there are beyond those of a login.
"""
