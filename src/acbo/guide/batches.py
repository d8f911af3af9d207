"""Batches for the compiled step: arrays only, so that new names, graphs and sets compile nothing."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int

from acbo.data import Dataset, Key, bucket
from acbo.inference.parent_sets import count_sets

from .examples import TrainingBatch, TrainingExample
from .losses import expert_probabilities

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

    def rank(name: Any) -> tuple[str, Any]:
        return type(name).__name__, name  # the type comes first because names and numbers do not compare

    return (
        tuple(tuple(tuple(sorted(set(s), key=rank)) for s in candidates) for candidates in parent_sets),
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


@dataclasses.dataclass(frozen=True, init=False, eq=False)
class TrainingBatchJAX:
    """A batch with the fields of the guide; only its arrays enter a compiled step.

    The names stay on the host: they are gone from a batch that went through `jit` or `jax.tree.map`. `row_mask` and
    `var_mask` say which rows and variables are real; by default the variables that have a name, and the rows that mark a
    target where any row of the example does. So `step(params, opt_state, *batch.arguments(), key)` knows the padding.
    """

    observational_data: Float[Array, "batch n d 3"]
    expert_probs: Float[Array, "batch k"]
    expert_accuracies: Float[Array, " batch"]
    parent_mask: Bool[Array, "batch k d"]
    """Members of each parent set."""
    set_mask: Bool[Array, "batch k"]
    """True for real parent sets."""
    target_idx: Int[Array, " batch"]
    var_mask: Bool[Array, "batch d"]
    row_mask: Bool[Array, "batch n"]
    names: HashableArgs | None

    def __init__(
        self,
        observational_data: Any,
        expert_probs: Any,
        expert_accuracies: Any,
        parent_sets: Iterable[Iterable[Iterable[Any]]],
        variable_orders: Iterable[Iterable[Any]],
        target_variables: Iterable[Any],
        *,
        row_mask: Any = None,
        var_mask: Any = None,
    ) -> None:
        data = jnp.asarray(observational_data, jnp.float32)
        probs = jnp.asarray(expert_probs, jnp.float32)
        if data.ndim != 4 or data.shape[-1] != 3:
            raise ValueError(
                f"`observational_data` must have shape [batch, rows, variables, 3]; got {data.shape}."
            )
        batch, _, d, _ = data.shape
        names = prepare_static_args(parent_sets, variable_orders, target_variables)
        sizes = {len(part) for part in names} | {batch, len(probs), len(expert_accuracies)}
        if len(sizes) > 1:
            raise ValueError(f"All parts of a batch must have {batch} entries; got {sorted(sizes)}.")
        members, real, targets = index_arrays(names, d, probs.shape[1])
        if var_mask is None:
            var_mask = np.arange(d) < np.array([len(order) for order in names[1]])[:, None]
        arrays = {
            "observational_data": data,
            "expert_probs": probs,
            "expert_accuracies": jnp.asarray(expert_accuracies, jnp.float32),
            "parent_mask": jnp.asarray(members),
            "set_mask": jnp.asarray(real),
            "target_idx": jnp.asarray(targets),
            "var_mask": jnp.asarray(var_mask, bool),
            "row_mask": jnp.asarray(_target_rows(data) if row_mask is None else row_mask, bool),
        }
        for name, value in (arrays | {"names": names}).items():
            object.__setattr__(self, name, value)

    @property
    def batch_size(self) -> int:
        """Number of examples."""
        return self.observational_data.shape[0]

    @property
    def marginals(self) -> Float[Array, "batch d"]:
        """The expert's probability of each variable to be a parent of the target."""
        return jnp.einsum("bk,bkd->bd", self.expert_probs, self.parent_mask.astype(jnp.float32))

    @property
    def parent_sets(self) -> list[list[frozenset[Any]]]:
        """The parent sets by name; padding is the empty set."""
        lists, width = restore_static_args(self._names())[0], self.expert_probs.shape[1]
        return [sets + [frozenset()] * (width - len(sets)) for sets in lists]

    @property
    def variable_orders(self) -> list[list[Any]]:
        """The names of the variables, without padding."""
        return restore_static_args(self._names())[1]

    @property
    def target_variables(self) -> list[Any]:
        """The names of the targets."""
        return restore_static_args(self._names())[2]

    def arguments(self) -> tuple[Any, ...]:
        """The six arguments that the guide puts between `opt_state` and `key`."""
        parts = (self.parent_sets, self.variable_orders, self.target_variables)
        return (*parts, self.observational_data, self.expert_probs, self.expert_accuracies)

    def datasets(self) -> Dataset:
        """The data of all examples, with a leading axis for the batch."""
        return jax.vmap(Dataset)(
            self.observational_data[..., 0],
            self.observational_data[..., 1] > 0.5,
            self.row_mask,
            self.var_mask,
            self.target_idx.astype(jnp.int32),
        )

    def _names(self) -> HashableArgs:
        if self.names is None:
            raise ValueError(
                "This batch has no names, because it went through a compiled function or `jax.tree.map`, which take "
                "arrays only. Keep the batch that `convert_to_jax_batch` returned."
            )
        return self.names


_ARRAYS = tuple(field.name for field in dataclasses.fields(TrainingBatchJAX) if field.name != "names")


def _flatten(batch: TrainingBatchJAX) -> tuple[list[tuple[Any, Any]], None]:
    return [(jax.tree_util.GetAttrKey(name), getattr(batch, name)) for name in _ARRAYS], None


def _unflatten(_: None, arrays: Iterable[Any]) -> TrainingBatchJAX:
    batch = object.__new__(TrainingBatchJAX)
    for name, value in zip((*_ARRAYS, "names"), (*arrays, None), strict=True):
        object.__setattr__(batch, name, value)
    return batch


jax.tree_util.register_pytree_with_keys(TrainingBatchJAX, _flatten, _unflatten)


def _target_rows(data: Float[Array, "batch n d 3"]) -> Bool[Array | np.ndarray, "batch n"]:
    """The rows that mark a target, which padding does not; all rows where none does."""
    marks = data[..., 2] if isinstance(data, Tracer) else np.asarray(data)[..., 2]
    marked = (marks != 0).any(-1)
    return marked | ~marked.any(-1, keepdims=True)


@functools.lru_cache(maxsize=256)
def index_arrays(
    names: HashableArgs, d: int, k: int
) -> tuple[Bool[np.ndarray, "batch k d"], Bool[np.ndarray, "batch k"], Int[np.ndarray, " batch"]]:
    """Names as arrays: members of each set, which sets are real, and the index of each target.

    A set that comes twice is real once: older batches are padded with empty sets. Results are kept, so a batch that
    comes again in each epoch is converted once.
    """
    parent_sets, orders, targets = names
    members, real = np.zeros((len(orders), k, d), bool), np.zeros((len(orders), k), bool)
    index = np.zeros(len(orders), np.int32)
    for b, (sets, order, target) in enumerate(zip(parent_sets, orders, targets, strict=True)):
        place = {name: position for position, name in enumerate(order)}
        if len(order) > d or len(sets) > k:
            raise ValueError(
                f"Example {b} has {len(order)} variables and {len(sets)} parent sets; the arrays hold {d} and {k}."
            )
        unknown = ({name for parents in sets for name in parents} | {target}) - set(place)
        if unknown:
            raise ValueError(
                f"`parent_sets` and `target_variables` must use names of `variable_orders`; in example {b} "
                f"{sorted(map(str, unknown))} are not among {list(order)}."
            )
        index[b] = place[target]
        for row, parents in enumerate(sets):
            members[b, row, [place[name] for name in parents]] = True
            real[b, row] = parents not in sets[:row]
    return members, real, index


def convert_to_jax_batch(
    batch: TrainingBatch | TrainingBatchJAX, *, variables: int | None = None, sets: int | None = None
) -> TrainingBatchJAX:
    """Stack the examples of a batch, padded to one size: variables to their bucket, rows and sets to the largest.

    - `variables`, `sets`: pad to these numbers instead. By default the sets are padded to the number that a bucket of
      at most 16 variables has with up to three parents, so that one program serves all models of a bucket.
    """
    if isinstance(batch, TrainingBatchJAX):
        return batch
    examples = list(batch.examples)
    if not examples:
        raise ValueError("`batch` must hold at least one example; got none.")
    d = bucket(max(len(e.variable_order) for e in examples)) if variables is None else variables
    listed = [list(e.parent_set_probs) for e in examples]
    k = padded_sets(d, max(map(len, listed))) if sets is None else sets
    n = max(e.observational_data.shape[0] for e in examples)
    data = np.zeros((len(examples), n, d, 3), np.float32)
    probs = np.zeros((len(examples), k), np.float32)
    rows, live = np.zeros((len(examples), n), bool), np.zeros((len(examples), d), bool)
    for b, (example, members) in enumerate(zip(examples, listed, strict=True)):
        height, width, _ = example.observational_data.shape
        if width > d or len(members) > k:
            raise ValueError(
                f"Example {b} has {width} variables and {len(members)} parent sets, more than `variables`={d} or "
                f"`sets`={k} hold."
            )
        data[b, :height, :width] = np.asarray(example.observational_data)
        probs[b, : len(members)] = np.asarray(expert_probabilities(example.expert_posterior, members))
        rows[b, :height], live[b, :width] = True, True
    return TrainingBatchJAX(
        data,
        probs,
        np.array([e.expert_accuracy for e in examples], np.float32),
        listed,
        [e.variable_order for e in examples],
        [e.target_variable for e in examples],
        row_mask=rows,
        var_mask=live,
    )


def padded_sets(variables: int, listed: int) -> int:
    """Padded number of parent sets: that of all sets of up to three members if it is small, else a power of two."""
    every = count_sets(variables - 1, 3)
    return every if variables <= 16 and listed <= every else 1 << (listed - 1).bit_length()


def create_training_batch_from_examples(
    examples: Sequence[TrainingExample], batch_size: int, key: Key
) -> TrainingBatch:
    """A random batch: different examples while there are enough, then again from the beginning."""
    if not examples:
        raise ValueError("`examples` must hold at least one example; got none.")
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1; got {batch_size}.")
    order = np.asarray(jr.permutation(key, len(examples)))
    return TrainingBatch(tuple(examples[i] for i in np.resize(order, batch_size)))
