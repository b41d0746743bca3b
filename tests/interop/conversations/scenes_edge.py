"""Scenes at the last epoch of a producer id, which takes 32,766 steps to get to (C6)."""

from __future__ import annotations

from typing import NamedTuple

from spark_producer.protocol import INIT_PRODUCER_ID, messages
from tests.interop.conversations.looking import DescribeTransactions, Fetch
from tests.interop.conversations.scene import EXPLICIT, Scene, Step, TxnVersion
from tests.interop.conversations.scenes_basic import settled, write
from tests.interop.conversations.talk import Talk
from tests.interop.conversations.writing import AddPartitionsToTxn, EndTxn, InitProducerId, Produce

AT_ONCE = 100


class TakeEpochs(NamedTuple):
    """InitProducerId for each of the ids, again and again until they have this epoch; asked without waiting for answers."""

    producers: tuple[str, ...]
    ids: tuple[str, ...]
    epoch: int

    def ask(self, talk: Talk, connection: str) -> str:
        reported = []
        bodies = {id: messages.InitProducerIdRequest(talk.named(id), 60_000) for id in self.ids}  # noqa: A001
        left = dict.fromkeys(self.ids, self.epoch + 1)
        while any(left.values()):
            count = min(AT_ONCE, *left.values())
            for name in self.ids * count:
                talk.client(f"{connection} {name}").send(INIT_PRODUCER_ID, bodies[name], 5)
            for name in self.ids:
                for _ in range(count):
                    _, answer = talk.client(f"{connection} {name}").receive(INIT_PRODUCER_ID, 5)
                    left[name] -= answer.error_code == 0
                    last = (answer.producer_id, answer.producer_epoch)
                if not left[name]:
                    reported.append(talk.meet(self.producers[self.ids.index(name)], *last))
        return "; ".join(reported)


def last_epoch(txn_version: TxnVersion) -> list[Step]:
    version = txn_version.end
    return [
        Step("A", TakeEpochs(("a", "b", "c"), ("x", "y", "z"), 32_765)),
        # x: nothing is open
        Step("A", InitProducerId("a2")),
        Step("A", InitProducerId("a3", given="a")),
        Step("A", InitProducerId("a4")),
        *write(txn_version, "a4", 0),
        Step("A", EndTxn("a2", True, version)),
        Step("A", Produce("a", 1, txn_version.produce)),
        Step("A", Produce("a2", 1, txn_version.produce)),
        Step("A", AddPartitionsToTxn("a2")),
        Step("A", EndTxn("a4", True, version)),
        settled(),
        Step("R", Fetch(True)),
        # y: a transaction is open and taken over
        *write(txn_version, "b", 0, id="y", partitions=(1,)),
        Step("B", InitProducerId("b2", "y")),
        Step("B", DescribeTransactions("y")),
        Step("B", EndTxn("b", True, version, "y")),
        Step("B", Produce("b", 1, txn_version.produce, (1,), id="y")),
        Step("R", Fetch(True, 1)),
        # z: transactions are ended by their own producer, with the last epoch but one and with the last one
        *write(txn_version, "c", 0, id="z", partitions=(2,)),
        Step("C", EndTxn("c", True, version, "z", becomes="c2")),
        settled("z"),
        Step("C", EndTxn("c", True, version, "z")),
        *write(txn_version, "c2", 1 if txn_version is EXPLICIT else 0, id="z", partitions=(2,)),
        Step("C", EndTxn("c2", True, version, "z", becomes="c3")),
        settled("z"),
        Step("C", EndTxn("c2", True, version, "z")),
        Step("C", EndTxn("c2", False, version, "z")),
        Step("C", EndTxn("c3", False, version, "z")),
        Step("C", InitProducerId("c4", "z")),
        *write(txn_version, "c4", 0, id="z", partitions=(2,)),
        Step("C", EndTxn("c4", True, version, "z")),
        settled("z"),
        Step("R", Fetch(True, 2)),
    ]


SCENES = [Scene("last-epoch", "C6: what comes after the last epoch of a producer id", last_epoch, slow=True)]
