"""The request handlers of the broker.

Owns: one function for each request type, and the table of them. Must not know: sockets, threads, files.
"""
