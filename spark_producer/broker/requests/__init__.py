"""The requests that the broker answers: which function, and what it does.

Owns: the table of functions, and one function for each kind of request. Must not know: sockets, threads, files.
"""
