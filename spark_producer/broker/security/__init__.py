"""The security of the listener: TLS, SASL logins, users, and the limits of connections before their login.

Owns: the settings of the secure listener, the keys of its users, the server's side of the SASL mechanisms, the state of each
login, the limits of unauthenticated connections.
Must not know: topics and records, or requests other than those of a login.
"""
