"""Connections of clients: accepting them, reading requests, answering in order, and timeouts.

Owns: sockets, frames, requests that wait (purgatory), backpressure.
Must not know: what a request means (`requests`), nor how records are stored.
"""
