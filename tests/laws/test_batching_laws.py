"""Laws of batching and caching: padding and pieces change nothing; the cache is a small list with a byte bound."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxworlds.batching import BucketedBatches, chunked_map
from jaxworlds.memory import ByteLRU


def row(x):  # exact operations: XLA may fuse others differently in each program
    return {"y": x * 2, "top": x.max(), "sorted": jnp.sort(x)}


direct = jax.vmap(row)
buckets = BucketedBatches(direct, sizes=(3, 8))


def data(n, seed):
    return np.random.default_rng(seed).normal(size=(n, 4)).astype(np.float32)


def expected(x):
    return {"y": x * 2, "top": x.max(1), "sorted": np.sort(x, axis=1)}


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(0, 2**31))
def test_bucketed_is_direct(n, seed):
    x = data(n, seed)
    result = buckets(x)
    jax.tree.map(np.testing.assert_array_equal, result, expected(x))
    assert buckets.traces <= 2


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 40), st.sampled_from([1, 5, 16]), st.integers(0, 2**31))
def test_chunked_map_from_the_host_is_direct(n, batch_size, seed):
    x = data(n, seed)
    want = expected(x) if n else {"y": x, "top": x[:, 0], "sorted": x}
    result = chunked_map(row, x, batch_size)
    jax.tree.map(np.testing.assert_array_equal, result, want)


@settings(deadline=None, max_examples=12)
@given(st.sampled_from([1, 7, 12]), st.sampled_from([1, 5, 16]), st.integers(0, 2**31))
def test_chunked_map_on_the_device_is_vmap(n, batch_size, seed):
    x = jnp.asarray(data(n, seed))
    result = chunked_map(row, x, batch_size)
    jax.tree.map(np.testing.assert_array_equal, result, direct(x))


class ModelLRU:
    """The same cache, as plainly as it can be written: a list of (key, size), least recently used first."""

    def __init__(self, max_bytes, max_items):
        self.max_bytes, self.max_items, self.items = max_bytes, max_items, []

    def put(self, key, size):
        self.items = [item for item in self.items if item[0] != key]
        if size > self.max_bytes:
            return False
        self.items.append((key, size))
        while sum(s for _, s in self.items) > self.max_bytes or len(self.items) > self.max_items:
            self.items.pop(0)
        return True

    def get(self, key):
        found = [item for item in self.items if item[0] == key]
        self.items = [item for item in self.items if item[0] != key] + found
        return found[0][1] if found else None


actions = st.lists(
    st.tuples(st.sampled_from(["put", "get", "discard"]), st.integers(0, 6), st.integers(0, 60))
)


@settings(deadline=None, max_examples=200)
@given(actions, st.integers(1, 100), st.integers(1, 5))
def test_the_cache_is_its_model(steps, max_bytes, max_items):
    cache, model = ByteLRU(max_bytes, max_items), ModelLRU(max_bytes, max_items)
    for action, key, size in steps:
        if action == "put":
            assert cache.put(key, np.zeros(size, np.uint8)) == model.put(key, size)
        elif action == "get":
            found = cache.get(key)
            assert (None if found is None else len(found)) == model.get(key)
        else:
            cache.discard(key)
            model.items = [item for item in model.items if item[0] != key]
        assert cache.keys() == [key for key, _ in model.items]
        assert cache.nbytes == sum(size for _, size in model.items) <= max_bytes
