"""Baselines: what is judged, what is only reported, and files that cannot be read."""

import json

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
import pytest

from jaxworlds.measuring import Baseline, BaselineError, baseline_key, measure

FIGURES = {
    "compiles": 1,
    "program_bytes": 1000,
    "peak_bytes": 8000,
    "median_s": 0.010,
    "iqr_s": 0.001,
    "rate": 5.0,
}


@pytest.fixture
def baseline(tmp_path):
    found = Baseline.load(tmp_path / "deep" / "baselines.json", key="here")
    found.record("step", FIGURES)
    return found


def test_key_names_the_machine_the_version_and_the_devices(devices):
    fingerprint, version, library, kind = baseline_key().split("/")
    assert len(fingerprint) == 12
    assert version == f"jax-{jax.__version__}"
    assert library == f"jaxlib-{jaxlib.__version__}"
    assert kind == f"cpu-cpu-x{len(devices)}"
    assert baseline_key() == baseline_key()


def test_record_and_load(baseline):
    again = Baseline.load(baseline.path, key="here")
    assert again.figures("step") == FIGURES
    assert again.names == ["step"]
    assert {name: type(value) for name, value in again.figures("step").items()}["compiles"] is int
    entry = json.loads(baseline.path.read_text())["baselines"]["here"]["step"]
    assert set(entry) == {"figures", "date", "commit"}


def test_keys_and_names_live_side_by_side(baseline):
    other = Baseline.load(baseline.path, key="elsewhere")
    assert other.names == []
    assert other.judge("step", FIGURES).status == "new"
    other.record("step", {"compiles": 2})
    baseline.record("reset", {"compiles": 1})  # loaded before `other` wrote: must not undo it
    assert Baseline.load(baseline.path, key="elsewhere").figures("step") == {"compiles": 2}
    assert Baseline.load(baseline.path, key="here").names == ["reset", "step"]


def test_default_key_is_this_machine(tmp_path):
    Baseline.load(tmp_path / "b.json").record("step", {"compiles": 1})
    assert list(json.loads((tmp_path / "b.json").read_text())["baselines"]) == [baseline_key()]


def test_same_figures_are_ok(baseline):
    verdict = baseline.judge("step", FIGURES)
    assert verdict.status == "ok"
    assert not verdict.regressed
    assert "compiles: 1 → 1 ok" in str(verdict)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"compiles": 2}, "regressed"),  # exact
        ({"compiles": 0}, "improved"),
        ({"program_bytes": 1100}, "ok"),  # up to 10 %
        ({"program_bytes": 1101}, "regressed"),
        ({"program_bytes": 899}, "improved"),
        ({"peak_bytes": 9000}, "regressed"),
        ({"median_s": 10.0}, "ok"),  # times are reported, not judged
        ({"median_s": 10.0, "compiles": 0}, "improved"),
        ({"program_bytes": 500, "compiles": 2}, "regressed"),  # one regression outweighs improvements
        ({"rate": 0.1}, "ok"),
        ({"lowered_bytes": 99999}, "ok"),  # first seen
    ],
)
def test_verdicts(baseline, change, status):
    assert baseline.judge("step", FIGURES | change).status == status


@pytest.mark.parametrize(
    ("seconds", "status"),
    [(0.0125, "ok"), (0.0131, "regressed"), (0.0069, "improved")],  # 3 × IQR = 3 ms is the wider band here
)
def test_times_are_judged_on_request_beyond_the_spread(baseline, seconds, status):
    figures = FIGURES | {"median_s": seconds}
    assert baseline.judge("step", figures, judge_time=True).status == status
    assert baseline.judge("step", figures).status == "ok"


@pytest.mark.parametrize(("seconds", "status"), [(0.0119, "ok"), (0.0121, "regressed")])
def test_times_must_also_grow_by_a_fifth(baseline, seconds, status):
    baseline.record("quiet", {"step_median_s": 0.010, "step_iqr_s": 1e-6})
    assert baseline.judge("quiet", {"step_median_s": seconds}, judge_time=True).status == status


def test_tolerance_per_figure(baseline):
    grown = FIGURES | {"program_bytes": 1400, "compiles": 2}
    assert baseline.judge("step", grown, tolerance={"program_bytes": 0.5, "compiles": 1}).status == "ok"
    assert baseline.judge("step", FIGURES | {"peak_bytes": 8001}, tolerance={"peak_bytes": 0}).regressed


def test_a_judged_figure_that_vanished_is_a_regression(baseline):
    rest = {name: value for name, value in FIGURES.items() if name != "peak_bytes"}
    verdict = baseline.judge("step", rest)
    assert verdict.regressed
    assert "peak_bytes: 8.00 kB → gone regressed" in verdict.text
    without_time = {name: value for name, value in FIGURES.items() if name != "median_s"}
    assert baseline.judge("step", without_time).status == "ok"


def test_the_text_shows_the_change(baseline):
    text = baseline.judge("step", FIGURES | {"program_bytes": 2000, "median_s": 0.02}).text
    assert "program_bytes: 1.00 kB → 2.00 kB (+100.0 %) regressed" in text
    assert "median_s: 10.0 ms → 20.0 ms (+100.0 %)\n" in text + "\n"


def test_a_larger_program_is_caught_and_noise_is_not(tmp_path):
    baseline = Baseline.load(tmp_path / "b.json")
    x = jnp.ones((16, 16))

    def rolled(x):
        return jax.lax.fori_loop(0, 50, lambda _, y: jnp.sin(y), x)

    def unrolled(x):
        for _ in range(50):
            x = jnp.sin(x)
        return x

    baseline.record("step", measure(rolled, x, repeats=3, min_seconds=0, name="step").figures())
    again = measure(rolled, x, repeats=3, min_seconds=0).figures()
    assert baseline.judge("step", again | {"median_s": 99.0}).status == "ok"
    grown = measure(unrolled, x, repeats=3, min_seconds=0).figures()
    verdict = baseline.judge("step", grown)
    assert verdict.regressed
    assert "program_bytes" in verdict.text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "12", True, None, np.ones(2)])
def test_figures_must_be_finite_numbers(baseline, value):
    before = baseline.path.read_bytes()
    with pytest.raises(BaselineError, match="figure `bad` must be an integer or a finite float"):
        baseline.record("step", {"bad": value})
    with pytest.raises(BaselineError, match="figure `bad`"):
        baseline.judge("step", {"bad": value})
    assert baseline.path.read_bytes() == before


def test_numpy_scalars_become_plain(baseline):
    baseline.record("np", {"bytes": np.int64(3), "median_s": np.float32(0.5)})
    figures = Baseline.load(baseline.path, key="here").figures("np")
    assert figures == {"bytes": 3, "median_s": 0.5}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff\xfe\x00",
        b'{"format": "other", "version": 1, "baselines": {}}',
        b'{"format": "jaxworlds-baseline", "version": 99, "baselines": {}}',
        b'{"format": "jaxworlds-baseline", "version": 1}',
        b'{"format": "jaxworlds-baseline", "version": 1, "baselines": {"k": 3}}',
        b'{"format": "jaxworlds-baseline", "version": 1, "baselines": {"k": {"n": {}}}}',
        b'{"format": "jaxworlds-baseline", "version": 1, "baselines": {"k": {"n": {"figures": {"a": "1"}}}}}',
        b'{"format": "jaxworlds-baseline", "version": 1, "baselines": {"k": {"n": {"figures": {"a": NaN}}}}}',
    ],
)
def test_a_corrupt_file_is_a_clear_error_and_stays(tmp_path, content):
    path = tmp_path / "b.json"
    path.write_bytes(content)
    with pytest.raises(BaselineError, match=r"b\.json` is not a baseline file: .*delete it and record again"):
        Baseline.load(path)
    with pytest.raises(BaselineError):
        Baseline(path, "k", {}).record("step", {"compiles": 1})
    assert path.read_bytes() == content


def test_every_truncation_is_an_error_or_the_same_figures(baseline):
    whole = baseline.path.read_bytes()
    for cut in range(len(whole) - 1):
        baseline.path.write_bytes(whole[:cut])
        try:
            found = Baseline.load(baseline.path, key="here").figures("step")
        except BaselineError:
            continue
        assert found == FIGURES
