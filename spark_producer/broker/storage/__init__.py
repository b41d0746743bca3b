"""How the embedded broker keeps records on its disk.

Owns: logs of segment files, and what must be known to open them again. Must not know: requests, connections.
"""
