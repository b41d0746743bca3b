"""Client connections: accepting them, reading requests, sending responses in order, and timeouts.

Owns: sockets, frames, the purgatory of delayed responses, backpressure.
Must not know: what a request means (`requests`), or how records are stored.
"""
