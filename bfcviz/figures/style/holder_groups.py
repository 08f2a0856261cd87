"""HolderGroups: the memory of holders that an image counts apart, the same groups at every step.

An image of many events sums the bytes of each class once. Colours by holder may change with each step: the image then
gives each group another colour, and reads no event again.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from bfcviz.figures.style.holder_classes import HUES, OTHER, largest_holders
from bfcviz.figures.style.label_tree import LabelTree

_MOST: Final = 2 * HUES + 1
"""Groups with a holder; one more has all other memory. Each costs a grid of sums."""


class HolderGroups:
    """The largest holders of a trace, each a group, and one group of all others.

    Args:
        tree: the labels.
        byte_steps: bytes times steps in use, by label number.
    """

    def __init__(self, tree: LabelTree, byte_steps: NDArray[np.float64]) -> None:
        nodes = sorted(largest_holders(tree, tree.sums(byte_steps), _MOST))
        self._byte_steps = byte_steps
        self._count = len(nodes) + 1
        self._of_label = np.full(
            tree.size + 1, len(nodes), np.uint8
        )  # the last: labels that the tree does not know
        for number, node in enumerate(nodes):  # holders before those inside them
            self._of_label[tree.order[tree.start[node] : tree.stop[node]]] = number

    def __len__(self) -> int:
        return self._count

    def classify(self, records: NDArray[np.void], _step: int) -> NDArray[np.integer]:
        """The group of each record."""
        last = len(self._of_label) - 1
        found: NDArray[np.uint8] = self._of_label[np.minimum(records["label"], last).astype(np.intp)]
        return found

    def most_of(self, classes: NDArray[np.uint8]) -> list[int]:
        """For each group the class that most of its memory has.

        Args:
            classes: the class of each label number, up to `OTHER`; a last entry for unknown labels.
        """
        groups = self._of_label[:-1].astype(np.intp)
        held = np.zeros((self._count, OTHER + 1))
        np.add.at(held, (groups, classes[: len(groups)]), self._byte_steps[: len(groups)])
        held[-1, OTHER] += 1e-9  # a group without memory
        found: list[int] = held.argmax(axis=1).tolist()
        return found
