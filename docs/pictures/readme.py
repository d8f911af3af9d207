"""Draws docs/pictures/readme.png, the picture of the README: an ARC task, a causal graph, and paths of particles.

python docs/pictures/readme.py
"""

from pathlib import Path

import jax
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap

import acbo
import jaxarc.tasks
import jaxtrace as jt
from acbo.pictures import layered_places
from jaxarc.utils.visualization.colors import ARC_COLORS
from jaxtrace.fields import double_gyre
from jaxtrace.tracking.boundary import reflective_boundary


def draw_task(axes: Axes, grid: np.ndarray, title: str) -> None:
    """One grid of a task in the usual colours."""
    axes.imshow(grid, cmap=ListedColormap(list(ARC_COLORS)[:10]), vmin=0, vmax=9)
    axes.set_xticks(np.arange(-0.5, grid.shape[1]), labels=[])
    axes.set_yticks(np.arange(-0.5, grid.shape[0]), labels=[])
    axes.grid(color="#555", linewidth=0.4)
    axes.tick_params(length=0)
    axes.set_title(title, fontsize=10)


def draw_causes(axes: Axes) -> None:
    """Edges with their probabilities after 100 rows of a model."""
    plant = acbo.parse_model("""
        feed = N(0, 1); coolant = N(0, 1)
        heat = 1.2*feed - 0.9*coolant + N(0, 0.6)
        impurity = 0.8*heat + N(0, 0.6)
        colour = 1.1*impurity + N(0, 0.4)
        target impurity
    """)
    data = acbo.sample_mixed(plant.scm, jax.random.key(0), rows=100, observational=60)
    count = len(plant.names)
    edges = np.asarray(acbo.edge_posterior(data).edges)[:count, :count]
    at = layered_places(edges) * (1.0, -1.0)
    for i, j in np.argwhere(edges >= 0.2).tolist():
        arrow = {
            "arrowstyle": "-|>",
            "lw": 0.5 + 2.5 * edges[i, j],
            "color": "#3b6ea5",
            "shrinkA": 20,
            "shrinkB": 20,
        }
        axes.annotate("", at[j], at[i], arrowprops=arrow)
        axes.text(
            *(at[i] + at[j]) / 2 + (0, 0.16), f"{edges[i, j]:.2f}", fontsize=8, ha="center", color="#3b6ea5"
        )
    for name, place in zip(plant.names, at, strict=True):
        box = {"boxstyle": "round,pad=0.4", "fc": "#ffd97a" if name == "impurity" else "white", "ec": "#333"}
        axes.text(*place, name, ha="center", va="center", fontsize=9, bbox=box)
    low, high = at.min(0) - 0.6, at.max(0) + 0.6
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.axis("off")
    axes.set_box_aspect(0.62)
    axes.set_title("acbo: who causes what, and how sure", fontsize=10)


def draw_paths(axes: Axes) -> None:
    """Where 20,000 particles of the double gyre are after a while, coloured by where they began."""
    bounds = [[0, 0], [2, 1]]
    seeds = jt.uniform_grid_seeds((200, 100), bounds, include_boundaries=False)
    tracker = jt.create_tracker("rk4", double_gyre(), reflective_boundary(bounds))
    found = tracker.track_particles(seeds, time_span=(0.0, 12.0), n_timesteps=2, dt=0.05).final
    axes.scatter(*np.asarray(found).T, c=np.asarray(seeds)[:, 0], s=1.6, cmap="cividis", linewidths=0)
    axes.set(xlim=(0, 2), ylim=(0, 1), aspect="equal", xlabel="x", ylabel="y")
    axes.set_title("jaxtrace: 20,000 particles at t = 12, by their first x", fontsize=10)


def main() -> None:
    task = jaxarc.tasks.load("arc-agi-1", split="training").raw("00d62c1b")
    pair = task.train[1]
    figure, axes = plt.subplots(1, 4, figsize=(14, 3.4), width_ratios=(1, 1, 1.5, 1.9), layout="constrained")
    draw_task(axes[0], pair[0], "jaxarc: a task")
    draw_task(axes[1], pair[1], "and its answer")
    draw_causes(axes[2])
    draw_paths(axes[3])
    figure.savefig(Path(__file__).with_name("readme.png"), dpi=110)


if __name__ == "__main__":
    main()
