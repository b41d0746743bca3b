"""Dead letters: the rows of a task that cannot be written go to a topic of their own, and the write goes on.

Nothing here is imported by a write without `deadLetterTopic`.

Owns: what a dead record looks like, how many there may be, and when they are sent.
Must not know: how rows are checked and taken out of batches, which `producer.bad_rows` and `accumulator.rejected_records` do.
"""
