"""The addresses and names of brokers in messages."""

from __future__ import annotations

from spark_producer.common.escape import for_log


def format_address(host: str, port: int) -> str:
    """Return `host:port`, with brackets around an IPv6 host."""
    host = for_log(host, limit=None)  # brokers may advertise any text
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def broker_name(node: int, host: str | None, port: int) -> str:
    """Return the name of a broker, or of a bootstrap server (a negative `node`); without `host` its address is unknown."""
    if host is None:
        return f"broker {node}" if node >= 0 else "a bootstrap server"
    if node < 0:
        return f"bootstrap server {format_address(host, port)}"
    return f"broker {node} at {format_address(for_log(host), port)}"
