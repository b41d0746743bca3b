"""Values and small functions that every layer uses: clusters, error codes, secrets, escaping, back-off.

Owns: no state, except for the failpoint function that a test has installed, and the secrets that were sent.
Must not know: any other part of the package.
"""
