"""Side-by-side runs of pyproducer and its peers against one real Kafka on the same machine.

Owns: the data, the contenders, the measurements, the report. Must not know: the internals of pyproducer.
"""
