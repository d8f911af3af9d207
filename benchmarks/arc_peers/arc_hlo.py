"""How many kernels one step is, read from the text of a compiled program: what the body of its longest loop calls."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
_OPCODE = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([a-z][\w\-]*)\(")
_CALLED = re.compile(r"(?:to_apply|body|calls)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"(?:true_computation|false_computation)=%?([\w.\-]+)|branch_computations=\{([^}]*)\}")
# What costs no kernel: names, views, and what is known when compiling.
FREE = {
    *("parameter", "get-tuple-element", "tuple", "constant", "bitcast", "after-all", "partition-id"),
    *("replica-id", "opt-barrier", "add-dependency"),
}


class Counted(NamedTuple):
    """`kernels` of one step apart from loops inside of it, those loops, and the kernels of one round of each."""

    kernels: int
    loops: int
    kernels_in_loops: int
    kinds: dict[str, int]


def kernels_of_step(text: str) -> Counted:
    """Count what the body of the loop that holds most launches. Of a branch the longer side counts."""
    computations = _computations(text)
    bodies = {
        match[1]
        for lines in computations.values()
        for line in lines
        if _opcode(line) == "while" and (match := re.search(r"body=%?([\w.\-]+)", line))
    }
    if not bodies:
        raise ValueError("`text` must hold a compiled loop; there is no `while` in it.")
    return max((_count(body, computations) for body in bodies), key=lambda c: c.kernels + c.kernels_in_loops)


def _computations(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            current = found.setdefault(match[1], [])
        elif line.startswith("  "):
            current.append(line)
    return found


def _opcode(line: str) -> str | None:
    # Layouts and tuple types hold brackets; the operation is the first word before a bracket after the type.
    match = _OPCODE.match(re.sub(r"/\*.*?\*/", "", line))
    return match[1] if match else None


def _count(name: str, computations: Mapping[str, list[str]]) -> Counted:
    kernels, loops, inside, kinds = 0, 0, 0, Counter[str]()
    for line in computations[name]:
        opcode = _opcode(line)
        if opcode is None or opcode in FREE or opcode.endswith("-done"):
            continue
        if opcode == "call":
            called = [_count(_CALLED.findall(line)[0], computations)]
        elif opcode == "while":
            body = _count(re.findall(r"body=%?([\w.\-]+)", line)[0], computations)
            called = [Counted(0, 1 + body.loops, body.kernels + body.kernels_in_loops, body.kinds)]
        elif opcode == "conditional":
            names = [
                part.strip().lstrip("%") for a, b in _BRANCHES.findall(line) for part in (a or b).split(",")
            ]
            called = [max((_count(n, computations) for n in names), key=lambda c: c.kernels)]
        else:
            kernels += 1
            kinds[opcode] += 1
            continue
        for part in called:
            kernels, loops, inside = (
                kernels + part.kernels,
                loops + part.loops,
                inside + part.kernels_in_loops,
            )
            kinds.update(part.kinds)
    return Counted(kernels, loops, inside, dict(kinds))
