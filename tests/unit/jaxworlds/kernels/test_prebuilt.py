"""Kernels of a wheel: the level that fits the processor, of exactly these sources, whole; else they are compiled here."""

import os
import shutil
import subprocess
from pathlib import Path

import jax
import pytest

from jaxworlds.commands import _installation
from jaxworlds.kernels import native, prebuilt

pytestmark = [
    pytest.mark.skipif(jax.default_backend() != "cpu", reason="kernels for CPUs"),
    pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler"),
]
PROBE = """// A probe.
// Without this: about 3 times slower.
#include "xla/ffi/api/c_api.h"
#ifdef NEWER
#undef XLA_FFI_API_MINOR
#define XLA_FFI_API_MINOR 999
#endif
#include "native.h"
extern "C" XLA_FFI_Error* probe(XLA_FFI_CallFrame* frame) { return jaxworlds::asks_for_metadata(frame), nullptr; }
"""
ALL = prebuilt.LEVELS["x86-64-v4"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source nobody has compiled, with a wheel's library for each level, on a processor that runs all of them."""
    monkeypatch.setenv("JAXWORLDS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(native, "_missing", {})
    monkeypatch.setattr(prebuilt, "cpu_levels", lambda: tuple(prebuilt.LEVELS))
    path = tmp_path / "probe.cc"
    path.write_text(PROBE + f"// {tmp_path.name} of process {os.getpid()}\n")
    for level in prebuilt.LEVELS:
        put_library(path, level)
    return path


def put_library(source: Path, level: str, *options: str) -> Path:
    """Build what a wheel would hold; the code of all levels is that of the lowest."""
    place = source.with_name("prebuilt") / f"{prebuilt.source_key(source)}-{level}.so"
    place.parent.mkdir(exist_ok=True)
    include = (f"-I{jax.ffi.include_dir()}", f"-I{Path(native.__file__).parent}")
    command = [*native._compiler(), "-shared", "-fPIC", *include, *options, str(source), "-o", str(place)]
    subprocess.run(command, check=True)
    place.write_bytes(place.read_bytes() + prebuilt.seal(place.read_bytes()))
    return place


def origin(source: Path) -> str:
    native._register.cache_clear()
    try:
        assert native.kernel_targets(source, ("probe",), "probing") is not None
        return native.kernel_origin(source)
    finally:
        native._register.cache_clear()


@pytest.mark.parametrize(
    ("flags", "best"),
    [
        (ALL | {"amx_tile", "hypervisor"}, "x86-64-v4"),
        (ALL - {"avx512vl"}, "x86-64-v3"),
        (ALL - {"fma"}, "x86-64-v2+avx"),  # AVX-512 without what comes before it is not a level
        (prebuilt.LEVELS["x86-64-v2+avx"], "x86-64-v2+avx"),
        (ALL - {"avx"}, None),
        (frozenset(), None),
    ],
)
def test_the_flags_choose_the_level(
    flags: frozenset[str], best: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prebuilt.platform, "system", lambda: "Linux")
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(prebuilt, "_cpu_flags", lambda: flags)
    levels = prebuilt.cpu_levels()
    assert next(iter(levels), None) == best
    assert levels == tuple(prebuilt.LEVELS)[3 - len(levels) :], "and all below it"
    monkeypatch.setattr(prebuilt.platform, "machine", lambda: "aarch64")
    assert prebuilt.cpu_levels() == ()


def test_the_fastest_library_is_used_without_a_compiler(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert origin(source) == "prebuilt for x86-64-v4"
    monkeypatch.setattr(prebuilt, "cpu_levels", lambda: ("x86-64-v3", "x86-64-v2+avx"))
    assert origin(source) == "prebuilt for x86-64-v3"
    assert native._missing == {}
    assert not (source.parent / "cache").exists()


def test_a_library_of_other_sources_or_macros_is_not_used(source: Path) -> None:
    assert list(prebuilt.prebuilt_libraries(source, ("NEWER",))) == []
    source.write_text(source.read_text() + "// edited\n")
    assert origin(source) == "compiled here"


def test_a_damaged_library_is_not_loaded(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = source.with_name("prebuilt").glob("*-x86-64-v4.so")
    content = path.read_bytes()
    path.write_bytes(content[:-2000])
    assert origin(source) == "prebuilt for x86-64-v3"
    assert next(prebuilt.prebuilt_libraries(source, None))[0] == "x86-64-v3"
    for file in source.with_name("prebuilt").iterdir():
        file.write_bytes(
            content[:100] + b"\0" + content[101:] if content[100] else content[:100] + b"\1" + content[101:]
        )
    assert origin(source) == "compiled here"
    assert list(prebuilt.prebuilt_libraries(source, None)) == []


def test_a_library_that_xla_refuses_is_replaced(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As when it was built against headers that are newer than the installed jax."""
    put_library(source, "x86-64-v4", "-DNEWER")
    assert origin(source) == "prebuilt for x86-64-v3"
    assert "the prebuilt kernels for x86-64-v4 do not fit this installation" in caplog.text


def test_a_whole_file_that_is_no_library_is_replaced(source: Path) -> None:
    for file in source.with_name("prebuilt").iterdir():
        file.write_bytes(b"text" + prebuilt.seal(b"text"))
    assert origin(source) == "compiled here"


def test_the_doctor_says_which(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_installation, "_kernel_sources", lambda: {"probing": source})
    monkeypatch.setenv("CXX", "/nowhere/c++")
    compiler, kernels = _installation.kernel_findings("cpu")
    assert (compiler.level, kernels.level) == ("ok", "ok")
    assert "none is needed" in compiler.detail
    assert kernels.detail == "prebuilt for x86-64-v4"
    monkeypatch.setenv("PROBING_KERNELS", "off")
    assert _installation.kernel_findings("cpu")[1].detail.startswith("switched off")


def test_a_checkout_has_no_libraries() -> None:
    for source in _installation._kernel_sources().values():
        assert list(prebuilt.prebuilt_libraries(source, None)) == []
