"""Parent sets, variable orders and targets as nested tuples that can be static arguments, and back."""

from collections.abc import Iterable
from typing import Any

HashableArgs = tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]


def prepare_static_args(
    parent_sets: Iterable[Iterable[Iterable[Any]]],
    variable_orders: Iterable[Iterable[Any]],
    target_variables: Iterable[Any],
) -> HashableArgs:
    """Nested tuples of the three; equal sets give equal tuples, so one trace serves both.

    - `parent_sets`: for each example, its candidate parent sets, each a set of variable names.
    - `variable_orders`: for each example, the order of its variables.
    - `target_variables`: one target per example.

    >>> prepare_static_args([[frozenset({"B", "A"})]], [["A", "B", "Y"]], ["Y"])
    (((('A', 'B'),),), (('A', 'B', 'Y'),), ('Y',))
    """
    return (
        tuple(tuple(_sorted_parents(parents) for parents in candidates) for candidates in parent_sets),
        tuple(tuple(order) for order in variable_orders),
        tuple(target_variables),
    )


def restore_static_args(
    hashable_args: HashableArgs,
) -> tuple[list[list[frozenset[Any]]], list[list[Any]], list[Any]]:
    """The inverse of `prepare_static_args`: lists of frozensets, lists of orders, and the list of targets."""
    parent_sets, variable_orders, target_variables = hashable_args
    return (
        [[frozenset(parents) for parents in candidates] for candidates in parent_sets],
        [list(order) for order in variable_orders],
        list(target_variables),
    )


def _sorted_parents(parents: Iterable[Any]) -> tuple[Any, ...]:
    """A set as a sorted tuple; the type comes first because names and numbers do not compare."""
    return tuple(sorted(set(parents), key=lambda parent: (type(parent).__name__, parent)))
