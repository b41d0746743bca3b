"""Values and small functions that every layer uses: clusters, error codes, secrets, escaping, back-off.

Owns: nothing that changes, but the failpoint that a test has installed.
Must not know: any other part of the package.
"""
