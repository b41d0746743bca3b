"""Test doubles of the surroundings of the code under test.

A double replaces something that the code under test calls or is called by: the clock, the scheduler of threads, the network,
a broker, a cluster, a client. It keeps the rules of what it replaces, it waits with a deadline, and it asserts nothing about
the code under test. All doubles live in this folder, and none of them imports a test or a helper of a test folder, so that
every folder of tests can use every double.

A helper makes data, reads results back or holds the terms of one folder's tests: `tests/unit/broker/batches.py` builds record
batches, `tests/unit/record/plain_reader.py` reads them. Helpers lie beside the tests that use them. What controls the real
thing (Kafka, a child process, the TCP proxy between two real peers) lies in `tests/support`.
"""
