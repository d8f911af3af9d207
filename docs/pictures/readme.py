"""Draws docs/pictures/readme.png, the picture of the README: an ARC task, a causal graph, and paths of particles.

python docs/pictures/readme.py
"""

from pathlib import Path

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

import acbo
import jaxarc.tasks
import jaxtrace as jt
from acbo.pictures import layered_places
from jaxarc.utils.visualization.colors import ARC_COLORS
from jaxtrace.fields import double_gyre
from jaxtrace.tracking.boundary import reflective_boundary

INK, FAINT, EDGE, TARGET = "#1c2233", "#5d6577", "#0072b2", "#ffd97a"
BOTTOM, HEIGHT = 0.06, 0.68
"""Where the panels stand, in parts of the figure's height; above is room for two lines of heading."""


def head(figure: Figure, x: float, name: str, said: str) -> None:
    """The name of a system and what its panel shows."""
    figure.text(x, 0.93, name, fontsize=15, fontweight="bold", color=INK, va="center")
    figure.text(x, 0.83, said, fontsize=11, color=FAINT, va="center")


def draw_task(axes: Axes, grid: np.ndarray) -> None:
    """One grid of a task in the usual colours."""
    axes.imshow(grid, cmap=ListedColormap(list(ARC_COLORS)[:10]), vmin=0, vmax=9)
    axes.set_xticks(np.arange(-0.5, grid.shape[1]), labels=[])
    axes.set_yticks(np.arange(-0.5, grid.shape[0]), labels=[])
    axes.grid(color="#555", linewidth=0.4)
    axes.tick_params(length=0)


def draw_causes(axes: Axes) -> None:
    """Edges with their probabilities after 100 rows of a model."""
    plant = acbo.parse_model("""
        feed = N(0, 1); coolant = N(0, 1)
        heat = 1.2*feed - 0.9*coolant + N(0, 0.6)
        impurity = 0.8*heat + N(0, 0.6)
        colour = 1.1*impurity + N(0, 0.4)
        target impurity
    """)
    data = acbo.sample_mixed(plant.scm, jax.random.key(4), rows=100, observational=60)
    count = len(plant.names)
    edges = np.asarray(acbo.edge_posterior(data).edges)[:count, :count]
    # Side by side, names are wider than the room between them: one stands higher, the next lower.
    at = layered_places(edges) * (1.0, -0.62) + np.array([[0, 0], [0, 0], [0, -0.06], [0, 0.3], [0, -0.16]])
    for i, j in np.argwhere(edges >= 0.2).tolist():
        arrow = {"arrowstyle": "-|>", "mutation_scale": 15, "shrinkA": 22, "shrinkB": 20, "color": EDGE}
        axes.annotate("", at[j], at[i], arrowprops=arrow | {"lw": 0.8 + 2.2 * edges[i, j]})
        axes.text(
            *(at[i] + at[j]) / 2 + (0.0, 0.1 if at[j, 1] > at[i, 1] else 0.08),
            f"{100 * edges[i, j]:.0f} %",
            fontsize=9,
            ha="left" if at[j, 1] < at[i, 1] else "right",
            color=EDGE,
        )
    for name, place in zip(plant.names, at, strict=True):
        box = {
            "boxstyle": "round,pad=0.45",
            "fc": TARGET if name == "impurity" else "#f2f4f8",
            "ec": "#5f6b7a",
        }
        axes.text(*place, name, ha="center", va="center", fontsize=11, color=INK, bbox=box)
    margin = np.array([0.45, 0.3])
    low, high = at.min(0) - margin, at.max(0) + margin
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.axis("off")


def draw_paths(axes: Axes) -> None:
    """Where 20,000 particles of the double gyre are after a while, coloured by where they began."""
    bounds = [[0, 0], [2, 1]]
    seeds = jt.uniform_grid_seeds((200, 100), bounds, include_boundaries=False)
    tracker = jt.create_tracker("rk4", double_gyre(), reflective_boundary(bounds))
    found = tracker.track_particles(seeds, time_span=(0.0, 12.0), n_timesteps=2, dt=0.05).final
    axes.scatter(*np.asarray(found).T, c=np.asarray(seeds)[:, 0], s=1.6, cmap="cividis", linewidths=0)
    axes.set(xlim=(0, 2), ylim=(0, 1), aspect="equal", xticks=[], yticks=[])


def main() -> None:
    task = jaxarc.tasks.load("arc-agi-1", split="training").raw("00d62c1b")
    source, target = task.train[1]
    figure = Figure(figsize=(14, 3.5), facecolor="white")
    head(figure, 0.01, "jaxarc", "puzzles: fill what the loops enclose")
    draw_task(figure.add_axes((0.008, BOTTOM, 0.17, HEIGHT), anchor="W"), source)
    draw_task(figure.add_axes((0.198, BOTTOM, 0.17, HEIGHT), anchor="W"), target)
    figure.text(0.1895, BOTTOM + HEIGHT / 2, "→", fontsize=18, color=FAINT, ha="center", va="center")
    head(figure, 0.39, "acbo", "who causes what, and how sure, from 100 rows")
    draw_causes(figure.add_axes((0.375, BOTTOM, 0.3, HEIGHT)))
    head(figure, 0.69, "jaxtrace", "20,000 particles, mixed by two vortices")
    draw_paths(figure.add_axes((0.69, BOTTOM, 0.302, HEIGHT), anchor="W"))
    figure.savefig(Path(__file__).with_name("readme.png"), dpi=110)


if __name__ == "__main__":
    main()
