"""Kernels that are missing, switched off or somebody else's: said once, by the doctor too, and never loaded."""

import dataclasses
import json
import linecache
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxworlds import run, runtime_report
from jaxworlds.commands import _installation
from jaxworlds.kernels import native

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="kernels for CPUs")
HEAD = "// A probe.\n// Without this: about 3 times slower.\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source nobody has compiled, a cache of its own, and a process that has not warned yet."""
    monkeypatch.setenv("JAXWORLDS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "_warned", False)
    monkeypatch.setattr(native, "_missing", {})
    path = tmp_path / "probe.cc"
    path.write_text(HEAD + f'extern "C" int probe() {{ return {os.getpid()}; }}\n')
    return path


def walk(worlds: int, steps: int) -> None:
    run(lambda x, t: (x + 1, None), jnp.zeros(worlds), steps, progress=False)


def line_of(warning: warnings.WarningMessage) -> str:
    """The line of this file that a warning points at; none if it points elsewhere."""
    return linecache.getline(__file__, warning.lineno).strip() if warning.filename == __file__ else ""


def test_a_long_run_without_kernels_warns_once(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    walk(1000, 200)  # nobody has looked for kernels
    assert native.kernel_targets(source, ("probe",), "probing") is None
    walk(10, 10)  # short
    with pytest.warns(
        native.MissingKernelsWarning,
        match=r"\(probing is about 3 times slower\): .*/nowhere/c\+\+.* install a C\+\+ compiler .*PROBING_KERNELS=off",
    ) as caught:
        walk(1000, 200)
    assert line_of(caught[0]).startswith("run(")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        walk(1000, 200)


def test_who_has_kernels_or_wants_none_is_not_warned(source: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        walk(1000, 200)
    assert native.slower(source) == "about 3 times slower"
    assert native.slower(source.with_name("none.cc")) == "slower"


def test_the_systems_kernels_are_missed(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jaxarc.kernels import native as arc_kernels
    from jaxtrace.fields import TimeSeriesField
    from jaxtrace.tracking import create_tracker, driver

    def enough(*_: object) -> None:
        raise InterruptedError("a run would begin here")

    monkeypatch.setattr(driver, "_run_batch", enough)
    monkeypatch.setenv("CXX", "/nowhere/c++")
    rows = np.stack(np.meshgrid(*[np.linspace(0, 1, 6, dtype=np.float32)] * 2, indexing="ij"), -1)
    field = TimeSeriesField(0.1 * np.ones((2, 36, 2), np.float32), np.array([0.0, 1.0]), rows.reshape(-1, 2))
    tracker = create_tracker(field=field)
    seeds = np.random.default_rng(0).uniform(0.2, 0.6, (10_000, 2)).astype(np.float32)
    native._register.cache_clear()
    try:
        assert arc_kernels.names() is None
        with pytest.raises(InterruptedError), pytest.warns(native.MissingKernelsWarning) as caught:
            tracker.track_particles(seeds, (0.0, 1.0), 2, 0.05, progress=False)
    finally:
        native._register.cache_clear()
    assert len(caught) == 1
    assert line_of(caught[0]).startswith("tracker.track_particles(")
    assert "jaxarc is about 9 times slower and jaxtrace is about 5 times slower on" in str(caught[0].message)


def findings(**variables: str) -> dict[str, dict[str, str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAXWORLDS_STRICT")}
    done = subprocess.run(
        [sys.executable, "-m", "jaxworlds.cli", "doctor", "--json"],
        env={**kept, "JAX_PLATFORMS": "cpu", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in json.loads(done.stdout)["findings"]}


@pytest.mark.own_process
def test_the_doctor_names_compiler_kernels_and_their_effect(tmp_path: Path) -> None:
    without = findings(CXX="/nowhere/c++", JAXWORLDS_CACHE_DIR=str(tmp_path), JAXTRACE_KERNELS="off")
    assert without["compiler"]["level"] == "note"
    assert "g++" in without["compiler"]["remedy"]
    assert "about 9 times slower" in without["jaxarc kernels"]["detail"]
    assert "about 5 times slower" in without["jaxtrace kernels"]["detail"]
    assert without["jaxtrace kernels"]["remedy"] == "unset JAXTRACE_KERNELS"
    assert "extra causal" in without


def test_the_doctor_is_content_with_a_compiler() -> None:
    if not any(f.name == "compiler" and f.level == "ok" for f in _installation.kernel_findings("cpu")):
        pytest.skip("no C++ compiler")
    levels = {f.name: f.level for f in _installation.kernel_findings("cpu")}
    assert levels == {"compiler": "ok", "jaxarc kernels": "ok", "jaxtrace kernels": "ok"}
    assert _installation.kernel_findings("gpu") == []


def test_the_doctor_names_the_extra_of_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_installation, "_is_installed", lambda name: name != "networkx")
    found = {f.name: f for f in _installation.extra_findings()}
    assert found["extra causal"].level == "note"
    assert found["extra causal"].detail == "networkx is absent: what needs them says so"
    assert found["extra causal"].remedy == "pip install 'jaxworlds[causal]'"
    assert found["extra fast"].level == "ok"


needs_compiler = pytest.mark.skipif(
    not any(f.level == "ok" for f in _installation.kernel_findings("cpu")[:1]), reason="no C++ compiler"
)


@needs_compiler
def test_a_library_that_others_could_have_written_is_compiled_again(source: Path) -> None:
    native.load(source, "probe", "key")
    (path,) = (source.parent / "cache").rglob("*.so")
    assert path.stat().st_mode & 0o022 == 0
    assert native._can_be_loaded(path)
    path.chmod(0o666)
    assert not native._can_be_loaded(path)
    native.load(source, "probe", "key")
    assert path.stat().st_mode & 0o022 == 0, "made again"
    real = path.rename(path.with_name("elsewhere.so"))
    path.symlink_to(real)
    assert not native._can_be_loaded(path), "nor one that lies elsewhere"


@needs_compiler
@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_a_library_of_another_user_is_not_loaded(source: Path) -> None:
    native.load(source, "probe", "key")
    (path,) = (source.parent / "cache").rglob("*.so")
    os.chown(path, 12345, 12345)
    assert not native._can_be_loaded(path)


@needs_compiler
def test_a_folder_that_others_can_write_keeps_no_library(
    source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    native._say_open.cache_clear()
    folder = source.parent / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    assert native._folder() is None
    native.load(source, "probe", "key")
    assert not list(folder.rglob("*.so"))
    assert f"others can write to {folder}" in caplog.text
    report = dataclasses.replace(runtime_report(), cache_dir=str(folder))
    found = _installation.cache_finding(report)
    assert found.level == "note"
    assert f"others can write to {folder}: compiled programs" in found.detail
    assert f"chmod go-w {folder}" in found.remedy
    folder.chmod(0o1777)  # as /tmp: others can add files, not replace them
    assert native._folder() is not None
