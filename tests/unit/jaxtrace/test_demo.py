"""jaxtrace's part of the demo: its flow, its channel, and the section it leaves."""

import dataclasses
import html
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from jaxtrace import demo
from jaxtrace.tracking import Trajectory

pytestmark = pytest.mark.usefixtures("quick_compile")


def test_the_flow_is_periodic_free_of_divergence_and_stays_out_of_the_cylinder() -> None:
    points = np.random.default_rng(0).uniform([-3, -3], [11, 3], (400, 2))
    points = points[np.linalg.norm(points, axis=1) > 1.1]
    now, later = demo.velocity(points, 0.3), demo.velocity(points, 1.3)
    np.testing.assert_allclose(now, later, atol=1e-6)
    assert np.abs(now - demo.velocity(points, 0.8)).max() > 1, "it varies within a period"
    h = 1e-3
    outflow = [
        (demo.velocity(points + h * axis, 0.3) - demo.velocity(points - h * axis, 0.3)) @ axis
        for axis in np.eye(2)
    ]
    assert np.abs(sum(outflow) / (2 * h)).max() < 1e-4
    angle = np.linspace(0, 2 * np.pi, 100)
    rim = 1.001 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    across = (demo.velocity(rim, 0.3) * rim).sum(axis=1)
    assert np.abs(across).max() < 0.05


def test_particles_enter_where_fluid_does() -> None:
    field = demo.wake(1)
    boundary = demo.channel(field)
    words = jax.random.uniform(jax.random.key(0), (20_000, 4))
    place = jax.vmap(boundary.inlet.place, (0, None, None))(words, jnp.zeros(2), jnp.int32(0))
    assert (np.asarray(place[:, 0]) == -3.0).all()
    counts, _ = np.histogram(np.asarray(place[:, 1]), bins=6, range=(-3, 3))
    middles = np.stack([np.full(60, -3.0), np.linspace(-2.95, 2.95, 60)], axis=-1)
    flux = np.asarray(field(jnp.asarray(middles, jnp.float32), 0.0))[:, 0].reshape(6, 10).sum(axis=1)
    np.testing.assert_allclose(counts / counts.sum(), flux / flux.sum(), atol=0.01)
    assert counts.max() > 1.5 * counts.min(), "slower along the walls"


def test_the_section_shows_and_says_what_happened(tmp_path: Path) -> None:
    console = Console(record=True, width=300)
    section = demo.demo(tmp_path, console, particles=120, periods=2, times=21)
    said = console.export_text()
    report = re.search(r"120 particles, .*", said)
    assert report
    assert html.escape(report[0].strip()) in section.body
    numbers = re.search(
        r"([\d,]+) particle-steps/s; ([\d,]+) left through the outlet and entered again, "
        r"the walls turned back ([\d,]+) and the cylinder ([\d,]+)",
        report[0],
    )
    assert numbers
    rate, left, _, _ = (int(number.replace(",", "")) for number in numbers.groups())
    assert rate > 0
    # In two periods the stream, about 4 radii in a period, takes more than a third of 14 radii through the outlet.
    assert 40 < left < 160
    assert section.body.count("data:image/png;base64,") == 1
    assert "<iframe srcdoc=" in section.body
    player = html.unescape(re.search(r'srcdoc="([^"]*)"', section.body)[1])  # type: ignore[index]
    assert "120 particles" in player
    assert '"age (periods)"' in player
    assert "http" not in section.body
    assert section.title.startswith("jaxtrace")


def test_a_lost_particle_is_an_error() -> None:
    positions = np.array([[[-2.0, 0.5], [4.0, -2.0]], [[-1.5, 0.6], [5.0, -2.0]]], np.float32)
    found = Trajectory(
        positions=positions,
        times=np.array([0.0, 0.25]),
        ids=np.arange(2),
        alive=np.ones((2, 2), bool),
        ages=np.array([[0.0, 0.0], [0.25, 0.25]]),
        release_times=np.zeros(2),
        outcomes=np.zeros(2, np.int8),
        patches=np.full(2, -1, np.int32),
    )
    demo._check(found)
    for place in ([12.0, 0.0], [0.0, -3.5], [0.2, 0.2]):
        moved = positions.copy()
        moved[1, 0] = place
        with pytest.raises(RuntimeError, match="Please report"):
            demo._check(dataclasses.replace(found, positions=moved))
    with pytest.raises(RuntimeError, match="Please report"):
        demo._check(dataclasses.replace(found, outcomes=np.array([0, 2], np.int8)))
