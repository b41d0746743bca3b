"""The fuzzer: every decoder of bytes that come from others gets damaged bytes, and must read or refuse them.

Owns: the targets, how bytes are damaged, what a run counts and keeps. Must not know: what the right value of good bytes is; the
tests in tests/unit do.
"""
