"""pyproducer: DataFrames to Kafka, the whole producer in Python over Arrow columns."""
