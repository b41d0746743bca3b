"""What the user has set about the transactions of one producer."""

from __future__ import annotations

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """The settings of a transactional producer. `timeout_ms` is `transaction.timeout.ms`, `user` what brokers know us as."""

    transactional_id: str
    timeout_ms: int
    user: str = ""
