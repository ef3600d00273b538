"""A form made of a mask: what a grammar's is, without a grammar."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class MaskForm:
    """Allows the tokens of a mask; counts how often the mask itself was asked for."""

    def __init__(self, mask: NDArray[np.uint32]) -> None:
        self._mask = mask
        self.masks = 0

    def allows(self, token: int) -> bool:
        return bool(self._mask[token // 32] >> np.uint32(token % 32) & np.uint32(1))

    def begin(self) -> None:
        pass

    def mask(self) -> NDArray[np.uint32]:
        self.masks += 1
        return self._mask
