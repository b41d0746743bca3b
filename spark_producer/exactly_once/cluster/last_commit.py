"""The note of the sink's last commit at the coordinator of the control id, and the check that a control topic has its record.

A control topic without the sink's record is that of a new sink; or it is another topic, was deleted, or has lost records: then
rows would be written twice. The coordinator shows the id as CompleteCommit until the next fence. So each fence notes the epoch of
the last commit in the transaction timeout of the id, which the coordinator reports as long as it knows the id. That costs no
request: a fence describes the id first, and always gives a timeout.
"""

from __future__ import annotations

from spark_producer.common.cluster import ProducerIdAndEpoch
from spark_producer.exactly_once.cluster.coordinator_state import COMPLETE_COMMIT, PREPARE_COMMIT
from spark_producer.protocol.messages import DescribedTransaction

CONTROL_TIMEOUT_MS = 60_000
"""The transaction timeout of the control id, if nothing was committed: its transactions take milliseconds."""

EPOCH_MODULUS = 900
"""The number of timeouts below `CONTROL_TIMEOUT_MS` that note an epoch, modulo this number. Earlier versions used none of
them."""

MIN_LAST_EPOCH = 32_700
"""The minimum epoch of a producer id whose epochs may be exhausted: the coordinator then gives another id, with epoch 0."""


def timeout_ms(noted: int | None, longest: int = CONTROL_TIMEOUT_MS) -> int:
    """Return the transaction timeout that notes a commit, as `noted_commit` reads it; `noted` is None if there was none."""
    return longest if noted is None else longest - 1 - noted


def noted_commit(row: DescribedTransaction | None) -> int | None:
    """Return the epoch of the last commit, modulo `EPOCH_MODULUS`, from the coordinator's description of the control id.

    None: nothing was committed, or it is not known, since the id had expired or no fence has noted it.
    """
    if row is None:
        return None
    if row.transaction_state in (COMPLETE_COMMIT, PREPARE_COMMIT):
        return row.producer_epoch % EPOCH_MODULUS
    noted = CONTROL_TIMEOUT_MS - 1 - row.transaction_timeout_ms
    return noted if 0 <= noted < EPOCH_MODULUS else None


def is_missing(noted: int | None, fencing: ProducerIdAndEpoch, last: ProducerIdAndEpoch | None) -> bool:
    """Return whether a control topic lacks the record of the commit that was noted.

    `noted` is the note of the last commit. `last` is the producer id and epoch of the marker of the newest record in the topic
    (None: there is no record). `fencing` is that of the caller.

    A note stands for several epochs, `EPOCH_MODULUS` apart. A record with any of them counts as the noted one. Another record is
    compared with the newest of them: a query may fail 900 times in a row, but a commit in between would have been noted. A record
    may be newer than the note, since commits may follow the note. The noted commit has the producer id that the control id still
    has, unless the epochs of an older id are exhausted.
    """
    if noted is None or last is None:
        return noted is not None
    if last.producer_id != fencing.producer_id:
        ended = noted >= fencing.epoch or (noted == 0 and last.epoch >= MIN_LAST_EPOCH)
        return not ended
    newest = fencing.epoch - 1 - (fencing.epoch - 1 - noted) % EPOCH_MODULUS
    return last.epoch % EPOCH_MODULUS != noted and last.epoch < newest
