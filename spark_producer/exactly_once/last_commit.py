"""What the coordinator of the control id remembers of the sink's last commit, and whether a control topic has its record.

A control topic without the sink's record is that of a new sink; or it is another topic, or was deleted, or has lost records: then
rows would be written twice. The coordinator knows better. It shows the id as CompleteCommit until the next fence. So each fence
notes the epoch of the last commit in the transaction timeout of the id, which the coordinator keeps and tells as long as it knows
the id. That costs no request: a fence looks at the id first, and always gives a timeout.
"""

from __future__ import annotations

from spark_producer.exactly_once.asks import Fencing
from spark_producer.exactly_once.coordinator_state import COMPLETE_COMMIT, PREPARE_COMMIT
from spark_producer.protocol.messages import DescribedTransaction

CONTROL_TIMEOUT_MS = 60_000
"""The transaction timeout of the control id, if nothing was committed: its transactions take milliseconds."""

NOTES = 900
"""So many timeouts below that one note an epoch, modulo this number. Earlier versions used none of them."""


LAST_EPOCHS = 32_700
"""From about this epoch on a coordinator gives another producer id, and begins with epoch 0 again."""


def timeout_ms(noted: int | None, longest: int = CONTROL_TIMEOUT_MS) -> int:
    """Return the transaction timeout that notes a commit (`noted_commit`); None if there was none."""
    return longest if noted is None else longest - 1 - noted


def noted_commit(row: DescribedTransaction | None) -> int | None:
    """Return the epoch of the last commit, modulo `NOTES`, as the coordinator shows the control id.

    None: nothing was committed, or nobody knows it any more, since the id had expired or no fence has noted it.
    """
    if row is None:
        return None
    if row.transaction_state in (COMPLETE_COMMIT, PREPARE_COMMIT):
        return row.producer_epoch % NOTES
    noted = CONTROL_TIMEOUT_MS - 1 - row.transaction_timeout_ms
    return noted if 0 <= noted < NOTES else None


def is_missing(noted: int | None, fencing: Fencing, last: Fencing | None) -> bool:
    """Whether a control topic lacks the record of the commit that was noted.

    `last` is what has ended the transaction of the newest record there (None: there is no record): a coordinator that has
    committed shows just this epoch. `fencing` is that of whoever asks. A record that is newer than the note is well: commits may
    follow it. A note may mean several epochs, `NOTES` apart. A record of any of them is well, and of others it is the newest one
    that counts: a query may well fail 900 times in a row, but not also commit in between without a note of that. What was noted
    was written with the producer id that the control id still has, unless its epochs have come to their end.
    """
    if noted is None or last is None:
        return noted is not None
    if last.producer_id != fencing.producer_id:
        ended = noted >= fencing.epoch or (noted == 0 and last.epoch >= LAST_EPOCHS)
        return not ended
    newest = fencing.epoch - 1 - (fencing.epoch - 1 - noted) % NOTES
    return last.epoch % NOTES != noted and last.epoch < newest
