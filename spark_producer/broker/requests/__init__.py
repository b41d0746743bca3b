"""The request handlers of the broker.

Owns: one function for each request type, and the table of them. Must not know: sockets, threads, files.

A handler is in the module that has the name of its messages' module in `protocol.messages`, except for InitProducerId (in
`transactions`), TxnOffsetCommit (in `group_offsets`), and DescribeProducers and WriteTxnMarkers (in `producers`). A new API has
its messages there, a row in `protocol.apis`, a function here, and a row in `handlers`.
"""
