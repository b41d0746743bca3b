"""Arrow columns to and from Kafka record batches (numpy and pyarrow only: no sockets, threads or clock)."""
