"""Lazy values, the byte-bounded cache, and the budget over both."""

import gc
import threading
import time
import weakref
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxarc.utils.visualization import memory as guide
from jaxworlds.memory import ByteLRU, LazyLoader, MemoryManager, frozen_garbage, get_memory_manager, lazy_file


class Clock:
    """A clock that the test moves."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def block(megabytes: float) -> np.ndarray:
    return np.zeros(int(megabytes * 10**6), np.uint8)


def counting(value):
    calls = []

    def load():
        calls.append(1)
        return value() if callable(value) else value

    return load, calls


# --- LazyLoader ---


def test_a_lazy_value_loads_once_and_again_after_release():
    load, calls = counting(lambda: {"data": np.zeros(100)})
    loader = LazyLoader(load)
    assert not loader.loaded
    assert loader.nbytes == 0
    assert calls == []
    first = loader.get()
    assert loader.get() is first
    assert loader.loaded
    assert loader.nbytes == 800
    assert loader.release() == 800
    assert not loader.loaded
    assert loader.release() == 0
    assert loader.get() is not first
    assert len(calls) == 2


def test_a_lazy_none_is_loaded_once_too():
    load, calls = counting(None)
    loader = LazyLoader(load)
    assert loader.get() is None
    assert loader.get() is None
    assert loader.loaded
    assert len(calls) == 1


def test_threads_share_one_load():
    load, calls = counting(lambda: time.sleep(0.05) or object())
    loader = LazyLoader(load)
    found = []
    threads = [threading.Thread(target=lambda: found.append(loader.get())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_a_loader_that_raises_is_tried_again():
    answers = [OSError("gone"), 7]

    def load():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    loader = LazyLoader(load)
    with pytest.raises(OSError, match="gone"):
        loader.get()
    assert not loader.loaded
    assert loader.get() == 7


def test_an_idle_value_goes_and_comes_back():
    clock = Clock()
    load, calls = counting(lambda: block(1))
    loader = LazyLoader(load, max_idle_time=10.0, clock=clock)
    value = weakref.ref(loader.get())
    clock.now = 9.0
    loader.get()  # a use: the idle time starts anew
    clock.now = 18.0
    assert loader.loaded
    clock.now = 19.5
    assert loader.nbytes == 0
    assert not loader.loaded
    assert value() is None
    loader.get()
    clock.now = 40.0
    loader.get()
    assert len(calls) == 3


def test_a_lazy_file_is_touched_by_get_only(tmp_path):
    path = tmp_path / "data.npy"
    loader = lazy_file(path, np.load)
    np.save(path, np.arange(3))
    np.testing.assert_array_equal(loader.get(), np.arange(3))
    missing = guide.create_lazy_visualization_loader(Path("no/such.npy"), np.load, max_idle_time=300.0)
    with pytest.raises(FileNotFoundError):
        missing.get()


def test_a_bad_idle_time_is_refused():
    with pytest.raises(ValueError, match="`max_idle_time` must be positive seconds; got 0"):
        LazyLoader(lambda: 1, max_idle_time=0.0)


# --- ByteLRU ---


def test_the_cache_forgets_what_was_used_least_recently():
    cache = ByteLRU(max_bytes=300)
    for name in "abc":
        assert cache.put(name, np.zeros(100, np.uint8))
    assert cache.get("a") is not None
    assert cache.put("d", np.zeros(150, np.uint8))
    assert cache.keys() == ["a", "d"]
    assert cache.nbytes == 250
    assert cache.evictions == 2
    assert "b" not in cache
    assert cache.get("b", "none") == "none"
    assert (cache.hits, cache.misses, len(cache)) == (1, 1, 2)


def test_an_item_over_the_budget_is_refused_and_hides_no_old_one():
    cache = ByteLRU(max_bytes=100)
    cache.put("a", np.zeros(60, np.uint8))
    cache.put("b", np.zeros(40, np.uint8))
    assert not cache.put("a", np.zeros(101, np.uint8))
    assert "a" not in cache
    assert cache.get("a") is None
    assert "b" in cache
    assert cache.refused == 1
    assert cache.nbytes == 40


def test_replacing_an_item_counts_it_once_and_items_may_be_bounded():
    cache = ByteLRU(max_bytes=1000, max_items=2)
    for _ in range(3):
        cache.put("a", np.zeros(10, np.uint8))
    assert cache.nbytes == 10
    cache.put("b", np.zeros(10, np.uint8))
    cache.put("c", np.zeros(10, np.uint8))
    assert cache.keys() == ["b", "c"]
    assert cache.discard("b") == 10
    assert cache.discard("b") == 0
    assert cache.clear() == 10
    assert cache.nbytes == len(cache) == 0
    assert cache.evict_oldest() == 0


def test_the_cache_stays_right_under_threads():
    cache = ByteLRU(max_bytes=5000)

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(300):
            key = int(rng.integers(20))
            cache.put(key, np.zeros(int(rng.integers(1, 1500)), np.uint8))
            cache.get(int(rng.integers(20)))
            assert cache.nbytes <= 5000

    errors = []

    def guarded(seed):
        try:
            work(seed)
        except BaseException as error:  # noqa: BLE001 - carried to the main thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert cache.nbytes == sum(len(cache.get(key)) for key in cache.keys())  # noqa: SIM118 - no mapping


def test_the_guide_cache_counts_megabytes():
    cache = guide.VisualizationCache(max_memory_mb=1, max_items=5)
    assert isinstance(cache, ByteLRU)
    assert (cache.max_bytes, cache.max_items) == (10**6, 5)
    assert cache.put("grid", block(0.9))


@pytest.mark.parametrize("arguments", [{"max_bytes": 0}, {"max_bytes": 1, "max_items": 0}])
def test_a_bad_cache_size_is_refused(arguments):
    with pytest.raises(ValueError, match="must be at least 1; got 0"):
        ByteLRU(**arguments)


# --- MemoryManager ---


def test_the_manager_evicts_the_least_recently_used_loader():
    manager = MemoryManager(max_total_memory_mb=2.5)
    first, second, third = (manager.register_lazy_loader(LazyLoader(lambda: block(1))) for _ in range(3))
    value = weakref.ref(first.get())
    second.get()
    first.get()
    third.get()
    assert [loader.loaded for loader in (first, second, third)] == [True, False, True]
    assert manager.nbytes == 2 * 10**6
    second.get()
    assert not first.loaded
    assert value() is None  # really gone, not only forgotten
    assert manager.evictions == 2


def test_the_manager_evicts_cached_items_and_loaders_by_one_order():
    manager = MemoryManager(max_total_memory_mb=3.0)
    cache = manager.register_cache(ByteLRU(max_bytes=10**7))
    cache.put("old", block(1))
    loader = manager.register_lazy_loader(LazyLoader(lambda: block(1)))
    loader.get()
    cache.put("new", block(1))
    assert manager.nbytes == 3 * 10**6
    cache.put("newer", block(0.5))
    assert cache.keys() == ["new", "newer"]
    cache.put("newest", block(1))
    assert not loader.loaded
    assert cache.keys() == ["new", "newer", "newest"]
    assert not cache.put("huge", block(3.5))
    assert manager.nbytes <= 3 * 10**6


def test_registering_enforces_the_budget_at_once():
    loader = LazyLoader(lambda: block(1))
    loader.get()
    manager = MemoryManager(max_total_memory_mb=0.5)
    manager.register_lazy_loader(loader)
    assert not loader.loaded


def test_a_value_over_the_whole_budget_is_handed_out_but_not_kept():
    manager = MemoryManager(max_total_memory_mb=1.0)
    other = manager.register_lazy_loader(LazyLoader(lambda: block(0.5)))
    other.get()
    loader = manager.register_lazy_loader(LazyLoader(lambda: block(2)))
    with pytest.warns(UserWarning, match=r"2\.0 MB is larger than the whole budget of 1\.0 MB"):
        assert loader.get().nbytes == 2 * 10**6
    assert not loader.loaded
    assert other.loaded


def test_the_report_keeps_each_kind_apart():
    with MemoryManager(max_total_memory_mb=100.0) as manager:
        loader = manager.register_lazy_loader(LazyLoader(lambda: {"data": jnp.zeros((1000, 250))}))
        cache = manager.register_cache(ByteLRU(10**6))
        cache.put("a", block(0.5))
        live = manager.get_memory_report()["monitor_stats"]["live_arrays_mb"]
        loader.get()
        report = manager.get_memory_report()
        assert report["monitor_stats"]["current_mb"] > 10
        assert report["monitor_stats"]["peak_mb"] >= report["monitor_stats"]["current_mb"]
        # Small arrays of other tests may be freed meanwhile.
        assert report["monitor_stats"]["live_arrays_mb"] - live == pytest.approx(1.0, abs=0.01)
        owned = report["owned"]
        assert (owned["mb"], owned["budget_mb"], owned["loaded"], owned["cached_items"]) == (1.5, 100.0, 1, 1)
    assert not loader.loaded
    assert len(cache) == 0
    loader.get()  # free of the manager now
    assert manager.nbytes == 0


def test_cleanup_releases_all_or_only_what_is_idle():
    clock = Clock()
    manager = MemoryManager()
    idle = manager.register_lazy_loader(LazyLoader(lambda: block(1), max_idle_time=5.0, clock=clock))
    kept = manager.register_lazy_loader(LazyLoader(lambda: block(2)))
    cache = manager.register_cache(ByteLRU(10**7))
    idle.get(), kept.get(), cache.put("a", block(3))
    clock.now = 6.0
    stats = manager.cleanup_memory(idle_only=True)
    assert (stats["freed_bytes"], stats["released"], stats["owned_bytes"]) == (10**6, 1, 5 * 10**6)
    stats = manager.cleanup_memory()
    assert (stats["freed_bytes"], stats["released"], stats["owned_bytes"]) == (5 * 10**6, 2, 0)


def test_the_manager_keeps_nothing_alive():
    manager = MemoryManager()
    loader = manager.register_lazy_loader(LazyLoader(lambda: block(1)))
    loader.get()
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None
    assert manager.nbytes == 0


def test_loaders_that_need_each_other_do_not_lock_up():
    manager = MemoryManager(max_total_memory_mb=1.5)
    inner = [manager.register_lazy_loader(LazyLoader(lambda: block(1))) for _ in range(2)]
    outer = [
        manager.register_lazy_loader(LazyLoader(lambda i=i: block(1) + inner[i].get())) for i in range(2)
    ]
    stop = time.monotonic() + 0.3

    def work(i):
        while time.monotonic() < stop:
            outer[i].get()
            inner[1 - i].get()

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in threads)
    outer[0].get()
    assert manager.nbytes <= 1.5e6


def test_the_process_has_one_manager():
    assert get_memory_manager() is get_memory_manager() is guide.get_memory_manager()
    assert get_memory_manager().max_bytes == 500 * 10**6


def test_a_bad_budget_is_refused():
    with pytest.raises(ValueError, match="`max_total_memory_mb` must be positive; got 0"):
        MemoryManager(0.0)


def test_frozen_garbage_sets_objects_aside_for_the_block():
    assert guide.GarbageCollectionOptimizer is frozen_garbage
    with frozen_garbage() as count:
        assert 1000 < gc.get_freeze_count() <= count  # some of them may die in the block
    assert gc.get_freeze_count() == 0
