"""Reads offset ranges of topic-partitions as Arrow columns: the fetching half of Kafka's consumer, without groups.

Owns: Fetch requests and their responses, the order of rows in a partition, retries, the bound on fetched bytes.
Must not know: pyspark, the options of the data source, producers.

`read_ranges` reads them in a task; `topic_reader` reads a whole topic, for the command line, and `table` makes an
Arrow table of one, for programs without Spark. The driver uses `offset_range` and
`lost_offsets`, which need no Arrow.
"""
