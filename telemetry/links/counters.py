"""What each error counter of a PCIe port says, and of which direction: pure.

Sources: the descriptions of DMTF's PCIeErrors (PCIeDevice, which PortMetrics uses; schema bundle 2025.4) and the PCI
Express base specification: data link layer rules (LCRC, sequence numbers, NAK, replay buffer and REPLAY_NUM), link
training (Recovery), flow control, and Advanced Error Reporting, which names what counts as correctable.

'This end' is the port whose counters these are: of a slot or a host port, the switch's side of the link.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fabric.bmc.series import counter_words


class Direction(StrEnum):
    """Which way the packets went of which a counter says something."""

    RECEIVED = "received"  # by this end
    SENT = "sent"  # by this end
    BOTH = "both"  # the link as a whole, or it does not say


@dataclass(frozen=True)
class Counter:
    """One of PCIeErrors; `name` is the property."""

    name: str
    direction: Direction
    meaning: str

    @property
    def words(self) -> str:
        """What people call it."""
        return counter_words(self.name)


_R, _S, _B = Direction.RECEIVED, Direction.SENT, Direction.BOTH
COUNTERS = (
    Counter("FatalErrorCount", _B, "Errors after which the link or the device behind it cannot be relied on."),
    Counter("NonFatalErrorCount", _B, "Requests that failed for good, while the link itself went on."),
    Counter("CorrectableErrorCount", _B, "Errors that the hardware mended by itself, in whichever direction."),
    # A replay is what this end sends again: its packet was not acknowledged.
    Counter("ReplayCount", _S, "Packets that this end sent again, since no acknowledgement came."),
    Counter("ReplayRolloverCount", _S, "Packets sent again four times in vain: the link had to retrain."),
    Counter("NAKReceivedCount", _S, "Refusals by the far end: what this end sent arrived damaged or not at all."),
    # A NAK that this end sends is about a packet that it received.
    Counter("NAKSentCount", _R, "Refusals by this end: what it received was damaged or missing."),
    # The receiver checks LCRC and sequence number. DMTF's 'issued by the receiver' is the far end: it came from there.
    Counter("BadTLPCount", _R, "Packets of data that came in damaged or out of order."),
    Counter("BadDLLPCount", _R, "Packets of the link's own, such as acknowledgements, that came in damaged."),
    Counter("L0ToRecoveryCount", _B, "Times that the link left its working state to retrain."),
    Counter("FlowControlTimeoutErrors", _B, "Times that no news of free buffers came in time."),
    Counter("UnsupportedRequestCount", _R, "Requests that this end received and does not know; no sign of a bad link."),
)
BY_NAME = {one.name: one for one in COUNTERS}
_PLACES = {one.name: place for place, one in enumerate(COUNTERS)}


def counter_of(name: str) -> Counter:
    """Return a counter; of one that this version does not know, its name and no direction."""
    return BY_NAME.get(name) or Counter(name, Direction.BOTH, "A counter of this service's own.")


def in_order(names: Iterable[str]) -> list[Counter]:
    """Return counters, gravest first, those that this version does not know last."""
    return [counter_of(name) for name in sorted(set(names), key=lambda name: (_PLACES.get(name, len(_PLACES)), name))]
