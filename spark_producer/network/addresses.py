"""The parser of `bootstrap.servers`."""

from __future__ import annotations

from spark_producer.errors import ConfigError

LAST_PORT = 65_535


def parse_bootstrap_servers(servers: str) -> list[tuple[str, int]]:
    """Parse `"host:port,[::1]:9092"` into `[("host", port), ("::1", 9092)]`, in the order given and without duplicates.

    Raises:
        ConfigError: there is no entry, or an entry is not host:port; the message names it.
    """
    entries = [entry.strip() for entry in servers.split(",")]
    addresses = [_parse(entry, servers) for entry in entries if entry]
    if not addresses:
        raise ConfigError(f"bootstrap.servers is {servers!r}. Give at least one host:port")
    return list(dict.fromkeys(addresses))


def _parse(entry: str, servers: str) -> tuple[str, int]:
    bare = entry.rpartition("://")[2]  # Kafka's own client allows a listener name before the host
    if "@" in bare:
        raise ConfigError("bootstrap.servers: an entry has text before an @. Give host:port, without user or password")
    host, colon, port = bare.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise _bad(entry, servers, "an IPv6 host needs brackets: [::1]:9092")
    if not colon or not host:
        raise _bad(entry, servers, "expected host:port, such as localhost:9092")
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= LAST_PORT):
        raise _bad(entry, servers, f"the port must be a number from 1 to {LAST_PORT}")
    if any(character.isspace() or character in "/[]" for character in host):
        raise _bad(entry, servers, f"{host!r} is not a host name")
    return host, int(port)


def _bad(entry: str, servers: str, reason: str) -> ConfigError:
    return ConfigError(f"bootstrap.servers: bad entry {entry!r} in {servers!r}: {reason}")
