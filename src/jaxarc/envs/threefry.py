"""Random words from a key of two words: Threefry-2x32, in plain arithmetic, so that kernels and XLA draw the same."""

from jaxtyping import Array, UInt32

# Rotations of the rounds (four and four in turn), and the number that is mixed into the key.
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA

Words = UInt32[Array, "*b"]


def threefry(key: tuple[Words, Words], counter: tuple[Words, Words]) -> tuple[Words, Words]:
    """Two random words from two words of a key and two of a counter, by the 20 rounds of Salmon et al. (2011)."""
    first, second = key
    keys = (first, second, first ^ second ^ first.dtype.type(_PARITY))
    x, y = counter[0] + first, counter[1] + second
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            x = x + y
            y = x ^ ((y << by) | (y >> (32 - by)))
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + first.dtype.type(group + 1)
    return x, y
