"""The requests that the broker answers, and the functions that answer them.

Owns: one function for each kind of request, and the table that names it. Must not know: sockets, threads, files.
"""
