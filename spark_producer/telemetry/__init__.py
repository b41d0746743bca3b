"""Client telemetry (KIP-714): metrics that a broker asks for, as it asks for them, within bounds.

Owns: the subscription and its limits, the names and the encoding of metrics, when a request is due.
Must not know: connections, threads; the clock is passed in. Producers and readers send the requests.

It is imported only after a broker has offered telemetry.
"""
