"""The runtime: settings before and after the backend starts, the report, and several processes."""

import itertools
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
import zlib
from pathlib import Path

import jax
import pytest

from jaxworlds import runtime
from jaxworlds.processes import start_processes
from jaxworlds.runtime import (
    RuntimeConflictError,
    _cache,
    configure,
    device_words,
    runtime_report,
    settings,
)
from jaxworlds.runtime._cache import remove_unfinished


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter with a clean JAX environment."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA"))}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**clean, "JAX_PLATFORMS": "cpu", **environment},
    )


def test_import_is_cheap_and_starts_nothing() -> None:
    done = python("""
        import sys, jaxworlds, jaxworlds.runtime
        assert "jax" not in sys.modules, "importing the package must not import jax"
        from jaxworlds.runtime import configure, backend_started
        configure(dtype="float64", cache_dir="off")
        assert not backend_started(), "choosing a dtype must not start a backend"
        import jax.numpy as jnp
        assert jnp.zeros(2).dtype == "float64"
        assert backend_started()
    """)
    assert done.returncode == 0, done.stderr


def test_every_module_imports_without_a_backend() -> None:
    done = python("""
        import importlib, pkgutil, jaxworlds
        for m in pkgutil.walk_packages(jaxworlds.__path__, "jaxworlds."):
            importlib.import_module(m.name)
        from jaxworlds.runtime import backend_started
        assert not backend_started()
    """)
    assert done.returncode == 0, done.stderr


def test_configure_before_start_sets_devices_and_cache(tmp_path: Path) -> None:
    done = python(f"""
        import jaxworlds
        chosen = jaxworlds.configure(device="cpu", cpu_devices=3, cache_dir={str(tmp_path)!r}, memory_limit_gb=2)
        import jax, jax.numpy as jnp
        assert jax.device_count() == 3
        jax.jit(lambda x: x * 2 + 1)(jnp.ones(3)).block_until_ready()
        assert any(chosen.cache_dir.rglob("*-cache")), "a compiled program must be kept"
        assert str(chosen.cache_dir).startswith({str(tmp_path)!r}) and "jaxlib-" in chosen.cache_dir.name
        again = jaxworlds.configure(device="cpu", cpu_devices=3)   # what already runs is no conflict
        assert again.memory_limit_gb == 2, "left-out arguments stay"
        from jaxworlds.memory import device_memory_limit
        assert device_memory_limit() == 2 * 1024**3
    """)
    assert done.returncode == 0, done.stderr


def test_cache_can_be_turned_on_after_the_first_compilation(tmp_path: Path) -> None:
    done = python(f"""
        import jax, jax.numpy as jnp, jaxworlds
        jax.jit(lambda x: x + 1)(jnp.ones(3))
        chosen = jaxworlds.configure(cache_dir={str(tmp_path)!r})
        jax.jit(lambda x: x * 3 - 1)(jnp.ones(3)).block_until_ready()
        assert any(chosen.cache_dir.rglob("*-cache"))
    """)
    assert done.returncode == 0, done.stderr


def test_a_late_different_value_raises_and_changes_nothing() -> None:
    jax.devices()
    before = settings()
    count = jax.local_device_count()
    with pytest.raises(
        RuntimeConflictError, match=rf"cpu_devices={count + 1}.*already runs: {count}.*before the first"
    ):
        configure(dtype="float64", cpu_devices=count + 1, cache_dir=None)
    assert settings() == before
    assert not jax.config.jax_enable_x64
    assert configure(device="cpu", cpu_devices=count, cache_dir=None).device == "cpu"


def test_a_refused_device_leaves_everything_as_it_was() -> None:
    done = python("""
        import os, jaxworlds
        from jaxworlds.runtime import backend_started, settings, RuntimeConflictError
        before = dict(os.environ)
        try:
            jaxworlds.configure(device="gpu", dtype="float64", preallocate=False, cpu_devices=3, cache_dir="off")
        except RuntimeConflictError as error:
            assert "`device='gpu'` is not there" in str(error)
        else:
            raise AssertionError("there is no GPU here")
        assert dict(os.environ) == before
        assert not backend_started(), "what cannot be there needs no backend to be refused"
        assert settings() == type(settings())()
        import jax
        assert not jax.config.jax_enable_x64 and jax.device_count() == 1
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("platforms", ["cuda", "tpu"])
def test_a_device_that_only_the_environment_asks_for_gets_a_clear_error(platforms: str) -> None:
    device = "gpu" if platforms == "cuda" else "tpu"
    done = python(
        f"import jaxworlds; jaxworlds.configure(device={device!r}, cache_dir='off')", JAX_PLATFORMS=platforms
    )
    assert f"`device='{device}'` is not there" in done.stderr
    assert f"JAX_PLATFORMS={platforms}" in done.stderr


def test_the_cache_stays_as_it_was_chosen(tmp_path: Path) -> None:
    done = python(f"""
        import jax, jaxworlds
        assert jaxworlds.configure(cache_dir="off").cache_dir == "off"
        assert jaxworlds.configure(dtype="float32").cache_dir == "off", "a later call must not turn it on again"
        assert jax.config.jax_compilation_cache_dir is None
        chosen = jaxworlds.configure(cache_dir={str(tmp_path)!r}).cache_dir
        assert jaxworlds.configure(dtype="float64").cache_dir == chosen
        assert jax.config.jax_compilation_cache_dir == str(chosen)
        assert jaxworlds.configure(cache_dir="off").cache_dir == "off"
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(any(d.platform == "gpu" for d in jax.devices()), reason="there is a GPU here")
def test_gpu_without_a_gpu_raises_before_and_after_the_start() -> None:
    with pytest.raises(RuntimeConflictError, match=r"`device='gpu'` is not there.*nvidia-smi.*device='cpu'"):
        configure(device="gpu", cache_dir=None)
    done = python("import jaxworlds; jaxworlds.configure(device='gpu')")
    assert done.returncode == 1
    assert "`device='gpu'` is not there" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "float16"}, "`dtype` must be one of 'float32', 'float64'; got 'float16'"),
        ({"device": "cuda"}, "`device` must be one of 'cpu', 'gpu', 'tpu'; got 'cuda'"),
        ({"memory_limit_gb": -1.0}, "`memory_limit_gb` must be positive; got -1.0"),
        ({"cpu_devices": 0}, "`cpu_devices` must be at least 1; got 0"),
    ],
)
def test_wrong_values_are_named(arguments: dict, words: str) -> None:
    # The annotations would stop some of these first; a user without the test hook reaches the message.
    with pytest.raises(ValueError, match=words):
        _unchecked_configure(**arguments)


def _unchecked_configure(**arguments: object) -> None:
    call = getattr(configure, "__wrapped__", configure)
    call(**arguments, cache_dir=None)


def test_cache_dir_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match=r"`cache_dir` must be a folder that can be written"):
        configure(cache_dir=file)


def test_gpu_memory_fraction_is_set_from_the_limit(tmp_path: Path) -> None:
    """A stand-in nvidia-smi tells 80 GB; no GPU is needed to see that the fraction follows."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 81920\n")
    tool.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    code = """
        import os
        from jaxworlds.runtime import configure
        configure(memory_limit_gb=20, preallocate=False, cache_dir="off")
        print(os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"], os.environ.get("XLA_CLIENT_MEM_FRACTION"))
    """
    assert python(code, PATH=path).stdout.split() == ["false", "0.2500"]
    kept = python(code, PATH=path, XLA_PYTHON_CLIENT_MEM_FRACTION="0.75")
    assert kept.stdout.split() == ["false", "None"], "a fraction that the user set rules"


def test_report_tells_what_runs() -> None:
    report = runtime_report()
    assert report.jax == jax.__version__
    assert len(report.devices) == jax.device_count()
    assert report.backend == "cpu"
    assert report.dtype == "float32"
    text = str(report)
    assert f"jax {jax.__version__}" in text
    assert report.cpu in text
    assert report.cache_dir is not None
    assert report.cache_dir in text


def test_submodules_are_found_at_the_top() -> None:
    done = python("import jaxworlds; print(jaxworlds.store.StoreError.__name__); jaxworlds.nothing_there")
    assert done.stdout.strip() == "StoreError"
    assert "has no attribute 'nothing_there'" in done.stderr


def test_backend_started_is_true_here() -> None:
    jax.devices()
    assert runtime.backend_started()


def test_start_processes_refuses_late_and_partial_calls() -> None:
    jax.devices()
    with pytest.raises(RuntimeConflictError, match="must come before the first JAX operation"):
        start_processes("localhost:1", 2, 0)
    done = python("from jaxworlds.processes import start_processes; start_processes(processes=2)")
    assert "must be given together" in done.stderr


@pytest.mark.own_process
def test_two_processes_compute_save_and_resume_together(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.listen()
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError as error:
            pytest.skip(f"no loopback network here ({error})")
    code = """
        import sys, json
        from jaxworlds import configure, start_processes
        configure(device="cpu", cpu_devices=2, cache_dir="off")
        start_processes(f"127.0.0.1:{sys.argv[1]}", 2, int(sys.argv[2]))
        start_processes()   # harmless
        import jax, jax.numpy as jnp, numpy as np
        from jaxworlds.batching import world_mesh
        from jaxworlds.rollout import resume, run
        from jaxworlds.rollout import Checkpoint
        from jax.experimental import multihost_utils
        result = run(lambda x, t: (x * 3 + t, x.sum()), np.arange(8, dtype=np.int32), 5, mesh=world_mesh(), record_every=1)
        whole = multihost_utils.process_allgather(result.carry, tiled=True)
        def step(c, t):
            return {"x": c["x"] * 3 + t, "key": jax.vmap(jax.random.fold_in, (0, None))(c["key"], t)}, c["x"].sum()
        start = {"x": np.arange(8, dtype=np.int32), "key": jax.random.split(jax.random.key(0), 8)}
        saving = Checkpoint(sys.argv[3], every_seconds=0)
        only_here = lambda c: jax.process_index() == 0 and c.step >= 2   # one process decides, both stop
        broken = run(step, start, 5, mesh=world_mesh(), checkpoint=saving, on_chunk=only_here, chunk=1, record_every=1)
        assert broken.outcome == "stopped" and broken.step < 5, broken
        again = resume(step, start, sys.argv[3], mesh=world_mesh())
        assert again.records.tolist() == result.records.tolist()
        assert (multihost_utils.process_allgather(again.carry["x"], tiled=True) == whole).all()
        try:
            run(step, start, 5, checkpoint="elsewhere")
        except ValueError as error:
            assert "`checkpoint` needs `mesh`" in str(error)
        print(json.dumps([jax.process_count(), jax.device_count(), whole.tolist(), result.records.tolist()]))
    """
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX", "XLA"))}
    command = [sys.executable, "-c", textwrap.dedent(code), str(port)]
    both = [
        subprocess.Popen(
            [*command, str(i), str(tmp_path / "run")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean,
        )
        for i in range(2)
    ]
    outputs = [p.communicate(timeout=150) for p in both]
    assert [p.returncode for p in both] == [0, 0], outputs[0][1] + outputs[1][1]
    x, sums = list(range(8)), []
    for t in range(5):
        sums.append(sum(x))
        x = [3 * v + t for v in x]
    for out, _ in outputs:
        assert json.loads(out.splitlines()[-1]) == [2, 4, x, sums]


def test_a_device_is_named_once() -> None:
    assert device_words("cpu", "cpu") == "cpu"
    assert device_words("NVIDIA H200", "gpu") == "NVIDIA H200 (gpu)"


def _cached(folder: Path, *forbidden: str) -> subprocess.CompletedProcess[str]:
    """Compile one program in a fresh interpreter that takes warnings for errors, and without these packages."""
    return python(f"""
        import sys
        sys.modules.update(dict.fromkeys({forbidden!r}))
        import jaxworlds, jax
        jaxworlds.configure(cache_dir={str(folder)!r}, device="cpu")
        import warnings
        warnings.simplefilter("error")
        assert float(jax.jit(lambda x: 2 * x + 1)(3.0)) == 7.0
    """)


@pytest.mark.parametrize("forbidden", [(), ("zstandard",)], ids=["zstd", "zlib"])
def test_a_program_that_was_not_written_to_its_end_is_compiled_and_written_anew(
    tmp_path: Path, forbidden: tuple[str, ...]
) -> None:
    assert _cached(tmp_path, *forbidden).returncode == 0
    (entry,) = tmp_path.rglob("*-cache")
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    os.utime(entry.with_name(".checked"), (1e9, 1e9))  # long ago, and the entry was written after it
    os.utime(entry, (1e9 + 1, 1e9 + 1))
    done = _cached(tmp_path, *forbidden)
    assert done.returncode == 0, done.stderr
    assert len(entry.read_bytes()) > 0.9 * len(whole)


def test_entries_are_looked_at_once_and_never_while_they_may_be_written(tmp_path: Path) -> None:
    def write(name: str, content: bytes, age: float) -> Path:
        file = tmp_path / f"{name}-cache"
        file.write_bytes(content)
        os.utime(file, (time.time() - age,) * 2)
        os.utime(tmp_path)
        return file

    whole = zlib.compress(bytes(1000))
    kept = [write("whole", whole, 1000.0), write("young", whole[:5], 1.0), tmp_path / "notes.txt"]
    kept[-1].write_text("no entry")
    broken = [write("half", whole[:-3], 900.0), write("empty", b"", 800.0), write("noise", b"noise", 700.0)]
    assert remove_unfinished(tmp_path) == 3
    assert all(file.exists() for file in kept)
    assert not any(file.exists() for file in broken)
    late = write("older than the last look", b"", 850.0)
    assert remove_unfinished(tmp_path) == 0
    assert late.exists()
    os.utime(kept[1], (time.time() - 61,) * 2)  # a minute later
    os.utime(tmp_path / ".checked", (time.time() - 120,) * 2)
    assert remove_unfinished(tmp_path) == 1
    assert not kept[1].exists()


def test_a_look_that_takes_long_goes_on_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(4):
        file = tmp_path / f"{k}-cache"
        file.write_bytes(b"")
        os.utime(file, (1e9 + k, 1e9 + k))
    clock = itertools.count(0.0, 0.15)
    monkeypatch.setattr(_cache.time, "monotonic", lambda: next(clock))
    assert [remove_unfinished(tmp_path) for _ in range(5)] == [1, 1, 1, 1, 0]


def test_entries_of_one_time_are_looked_at_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(4):
        file = tmp_path / f"{k}-cache"
        file.write_bytes(b"")
        os.utime(file, (1e9 + k // 3, 1e9 + k // 3))
    clock = itertools.count(0.0, 0.15)
    monkeypatch.setattr(_cache.time, "monotonic", lambda: next(clock))
    assert [remove_unfinished(tmp_path) for _ in range(3)] == [3, 1, 0]


def test_a_cache_that_is_gone_or_belongs_to_others_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remove_unfinished(tmp_path / "gone") == 0
    file = tmp_path / "theirs-cache"
    file.touch()
    os.utime(file, (1e9, 1e9))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(_cache.os, "unlink", refuse)
    monkeypatch.setattr(Path, "touch", refuse)
    assert remove_unfinished(tmp_path) == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["theirs-cache"]
