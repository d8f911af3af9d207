"""The command `jaxworlds` as a person uses it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxworlds import demo as demo_module
from jaxworlds import doctor
from jaxworlds.cli import main


def run_cli(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code if isinstance(ended.value.code, int) else 1


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("--help") == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("demo", "doctor", "bench", "Example: jaxworlds doctor --json"))


def test_doctor_finds_this_machine_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("doctor", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["healthy"] is True
    levels = {f["name"]: f["level"] for f in found["findings"]}
    assert levels["compile"] == levels["callback"] == levels["sharding"] == "ok"
    assert found["report"]["jax"] == jax.__version__
    assert run_cli("doctor") == 0
    assert "Everything works." in capsys.readouterr().out


def test_doctor_reports_what_fails_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> str:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(doctor, "_check_compile", broken)
    assert run_cli("doctor") == 1
    shown = capsys.readouterr().out
    assert "no compiler here" in shown
    assert "reinstall jax" in shown
    assert "Something does not work" in shown


@pytest.mark.own_process
@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({"JAX_PLATFORMS": "cuda"}, "unset JAX_PLATFORMS"),
        ({"JAXWORLDS_CACHE_DIR": "/dev/null/x"}, "JAXWORLDS_CACHE_DIR"),
    ],
)
def test_doctor_survives_what_it_is_there_for(environment: dict[str, str], word: str) -> None:
    command = [sys.executable, "-m", "jaxworlds.cli", "doctor", "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert found["healthy"] is False
    assert any(word in f["remedy"] for f in found["findings"] if f["level"] == "bad")


def test_doctor_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    finding = doctor.Finding("gpu", "note", "odd [/x] text", "install `jax[cuda13]`")
    doctor.print_diagnosis(doctor.Diagnosis(None, (finding,)))
    shown = capsys.readouterr().out
    assert "jax[cuda13]" in shown
    assert "[/x]" in shown


def test_doctor_sees_worlds_that_are_not_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    import jaxworlds.batching

    monkeypatch.setattr(jaxworlds.batching, "shard_worlds", lambda x, mesh: jnp.asarray(x))
    finding = doctor._try("sharding", doctor._check_sharding)
    assert finding.level == ("ok" if jax.device_count() == 1 else "bad")


def test_doctor_knows_the_odd_settings() -> None:
    report = doctor.diagnose().report
    assert report is not None
    odd = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ("flags", "note")}
    with jax.debug_nans(True):
        assert ("nans", "note") in [(f.name, f.level) for f in doctor._oddities(report, {})]
    with jax.disable_jit():
        assert ("jit", "bad") in [(f.name, f.level) for f in doctor._oddities(report, {})]
    assert [f for f in doctor._oddities(report, {"JAX_PLATFORMS": "cpu"}) if f.level == "bad"] == []
    for variable, expected in odd.items():
        found = doctor._oddities(report, {variable: "1", "JAX_PLATFORMS": "cpu"})
        assert expected in [(f.name, f.level) for f in found]
        assert all(f.remedy for f in found)


def test_demo_writes_a_page_that_needs_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("demo", "--out", str(tmp_path), "--steps", "48") == 0
    page = (tmp_path / "index.html").read_text()
    assert "every bit equals the uninterrupted run" in page
    assert page.count("data:image/png;base64,") == 3
    names = ("http-equiv", 'xmlns="http://www.w3.org/2000/svg"')  # an attribute, and the name of a language
    for name in names:
        page = page.replace(name, "")
    assert "http" not in page, "self-contained: no address outside"
    shown = capsys.readouterr().out
    assert "jaxarc" in shown
    assert "jaxtrace" in shown
    assert "acbo" in shown
    assert "Report:" in shown
    assert "stopped at step 24" in page or "stopped at step 36" in page
    assert run_cli("demo", "--steps", "7") == 2


def test_the_demo_world_conserves_what_it_must() -> None:
    """Without reaction and feed, diffusion keeps the mean; a uniform dish without v stays as it is."""
    world = demo_module.GrayScott(jnp.ones((8, 8)), jnp.zeros((8, 8)), jnp.float32(0.03), jnp.float32(0.06))
    after = demo_module.advance(world)
    np.testing.assert_allclose(after.u, 1.0, rtol=1e-6)
    np.testing.assert_allclose(after.v, 0.0)
    field = jax.random.normal(jax.random.key(0), (8, 8))
    assert abs(float(demo_module.laplacian(field).sum())) < 1e-4
    wave = jnp.sin(2 * jnp.pi * jnp.arange(64) / 64)[:, None] * jnp.ones(64)
    # The nine-point stencil has eigenvalue -(0.6)(1 - cos k) for a plane wave along an axis.
    expected = -0.6 * (1 - np.cos(2 * np.pi / 64)) * wave
    np.testing.assert_allclose(demo_module.laplacian(wave), expected, atol=1e-5)


def test_bench_says_where_it_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import jaxworlds.cli as cli

    monkeypatch.setattr(cli, "__file__", str(tmp_path / "a" / "b" / "cli.py"))
    assert run_cli("bench") == 2
    assert "part of the repository" in capsys.readouterr().err
