"""A ledger whose events tests read."""

from bfcviz.events.ledger import Ledger
from bfcviz.events.log import EventLog, Reader
from bfcviz.events.schema import Kind

BASE = 0x7000_0000


class Heap(Ledger):
    """A ledger whose events the tests read."""

    def __init__(self, capacity=1 << 12):
        self.log = EventLog(capacity)
        super().__init__(self.log)

    def events(self):
        return Reader(self.log, 0).read(1 << 20)

    def kinds(self):
        return [Kind(kind).name for kind in self.events()["kind"]]

    def chunks_in_use(self):
        return {at: (chunk.size, chunk.requested) for at, chunk in self.in_use.items()}

    def sizes(self):
        return {at: region.size for at, region in self.regions.items()}
