"""Every remedy in a message can be typed where the reader is: an argument in Python, an option on a command line."""

import ast
import json
import re
import warnings
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import jaxtrace.cli
from jaxtrace.cli import Info, Plot, Run, main
from jaxworlds.commands._messages import spelled_for

pytestmark = pytest.mark.devices

SOURCE = Path(jaxtrace.cli.__file__).parent
ARGUMENT = re.compile(r"`([a-z_]+)=([^`]*)`")
# What only Python can ask for, so that only a reader in Python meets these remedies.
PYTHON_ONLY = {
    "at": "plot_positions; `--at` takes times and dates alone",
    "centring": "grids made by hand",
    "columns": "tables of seeds from Python; the first line of a file names its columns",
    "decode_times": "an open xarray data set",
    "differentiable": "gradients",
    "diffusivity": "formulas from Python; commands set it by `--option diffusivity=`",
    "every": "plots from Python",
    "extrapolation": "an argument of fields",
    "fused": "trackers from Python",
    "keep_positions": "runs with `reduce`",
    "mask_and_scale": "an open xarray data set",
    "max_time_steps": "met only by who passes it",
    "path": "plot_positions from Python",
    "steps": "keepers of streamed fields",
    "inlet_distribution": "inlets from Python and from problem files, under the same name",
    "drift_correction": "integrators from Python and from `options` of problem files, under the same name",
    "order": "inlets",
    "side": "boundaries from Python and from problem files, under the same name",
}


def run_of(**options: Any) -> Run:
    return Run(problem="flow.nc", **options)


def messages() -> list[tuple[str, str]]:
    """All texts of the package that are no docstrings, f-strings with their parts in braces."""
    found = []
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        silent = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        inner = {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in silent | inner
            ):
                found.append((str(file.relative_to(SOURCE)), node.value))
            elif isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in node.values]
                found.append((str(file.relative_to(SOURCE)), "".join(map(str, parts))))
    return found


def test_every_argument_in_a_message_of_jaxtrace_has_an_option() -> None:
    """A remedy that a command can meet names an option of it; what is left names why no command meets it."""
    seen, without = 0, []
    for file, text in messages():
        for name, value in ARGUMENT.findall(text):
            seen += 1
            commands = (run_of(), Info(file="flow.nc"), Plot(file="flow.nc"))
            spelled = [
                spelled_for(command, f"`{name}={value}`") != f"`{name}={value}`" for command in commands
            ]
            reading = file.startswith("io/") and "trajector" not in file
            if not (all(spelled) if reading else any(spelled)) and name not in PYTHON_ONLY:
                without.append(f"{file}: `{name}=`")
    assert without == []
    assert seen > 30


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("Pass `select={'depth': 0}`.", "Pass `--select depth=0`."),
        ("Pass `velocity=('u', 'v')`.", "Pass `--velocity u v`."),
        (
            "`attributes={'x': {'units': 'm'}, 'u': {'standard_name': 'a b'}}`",
            '`--attributes x.units=m "u.standard_name=a b"`',
        ),
        ("`velocity=('u', 'v', None)`", "`--velocity u v none`"),
        ("`velocity='flow rate'`", '`--velocity "flow rate"`'),
        ("pass `convert_units=False`", "pass `--keep-units`"),
        ("Pass `times=` in seconds", "Pass `--slice-times` in seconds"),
        ("pass `epoch=`", "pass `--since`"),
        ("`missing='zero'` or `dim=3`", "`--missing zero` or `--dim 3`"),
        ("`time_span` must have a length", "`--span` must have a length"),
        ("`reduce=` and `nothing` stay", "`reduce=` and `nothing` stay"),
        ("`velocity` of the file", "`velocity` of the file"),
        ("`dt` must be above 0", "`--dt` must be above 0"),
        ("`nothing` must be above 0", "`nothing` must be above 0"),
        ("`problem` must be there", "`problem` must be there"),
        (
            "Give `resume` what that run was given, or take another folder.",
            "Type the options of that run, or give `--checkpoint` another folder.",
        ),
        ("`dt` must be positive", "`--dt` must be positive"),
        ("`earth_radius` must be", "`--earth-radius` must be"),
        ("`file` must name", "`FILE` must name"),
        ("`problem` must be", "`problem` must be"),
        ("`inside` of `seeds` must be", "`inside` of `seeds` must be"),
    ],
)
def test_arguments_are_spelled_as_options(text: str, typed: str) -> None:
    assert spelled_for(run_of(), text) == typed


def command(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[int, str, str]:
    line = [str(one) for one in arguments]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.raises(SystemExit) as ended:
            main(line)
    return int(ended.value.code or 0), *capsys.readouterr()


def test_remedies_of_a_command_line_work_when_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each message is met, and what it says is typed: it then goes on, for `info`, `run` and `plot` alike."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
    flow = (("time", "depth", "y", "x"), np.full((2, 3, 4, 5), 0.01, np.float32), {"units": "m/s"})
    data = xarray.Dataset(
        {"u": flow, "v": flow, "uo": flow, "vo": flow},
        {
            "time": ("time", [0.0, 10.0], {"units": "months since 2001-01-01"}),
            "depth": ("depth", [0.0, 1.0, 5.0], {"units": "m", "positive": "down"}),
            "y": ("y", np.arange(4.0), {"units": "m"}),
            "x": ("x", np.arange(5.0), {"units": "m"}),
        },
    )
    path = tmp_path / "ocean.nc"
    data.to_netcdf(path, engine="h5netcdf")
    remedies: list[str] = []
    for _ in range(4):
        code, _, errors = command(capsys, "info", path, *remedies)
        if not code:
            break
        typed = re.findall(r"`(--[^`]+)`", errors)
        assert typed, errors
        if "--velocity u v`" in errors and "--velocity" not in remedies:
            remedies += ["--velocity", "u", "v"]
        elif "--slice-times" in errors:
            remedies += ["--slice-times", "2001-01-01", "2001-02-01"]
        else:
            assert "`--select depth=0`" in errors
            remedies += ["--select", "depth=0"]
    assert code == 0
    assert {"--velocity", "--slice-times", "--select"} <= set(remedies)
    code, said, errors = command(
        capsys, "run", path, *remedies, "--particles", 3, "--times", 2, "--out", tmp_path / "a.npz"
    )
    assert code == 0, errors
    assert "from 2001-01-01 to 2001-02-01" in said
    code, _, errors = command(
        capsys, "plot", path, *remedies, "--out", tmp_path / "a.png", "--at", "2001-01-15"
    )
    assert code == 0, errors
    code, _, errors = command(capsys, "info", path, *remedies, "--select", "depth")
    assert code == 2
    assert "`--select` must be a dimension and a number, such as depth=0; got 'depth'" in errors


def ended(main: Any, capsys: pytest.CaptureFixture[str], *line: Any) -> tuple[int, str]:
    """The exit code of a command and what it said on stderr."""
    with pytest.raises(SystemExit) as end:
        main([str(one) for one in line])
    return int(end.value.code or 0), " ".join(capsys.readouterr().err.split())


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    pair = {"input": [[1, 2]], "output": [[2, 1]]}
    (tmp_path / "tasks.json").write_text(json.dumps({"a": {"train": [pair], "test": [pair]}}))
    return tmp_path / "tasks.json"


def test_a_checkpoint_of_another_run_is_told_by_options(
    task_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jaxarc.cli import main as jaxarc

    line = ["rollout", "--dataset", task_file, "--environments", 4, "--steps", 4]
    line += ["--checkpoint", tmp_path / "run"]
    assert ended(jaxarc, capsys, *line)[0] == 0
    code, said = ended(jaxarc, capsys, *line)
    assert code == 2
    assert "`--checkpoint` must be a folder without a run" in said
    assert "Type the same command with `--resume` to go on with it" in said
    assert "overwrite=True" not in said
    for other in (["--environments", 8], ["--seed", 5], ["--steps", 9]):
        code, said = ended(jaxarc, capsys, *line, "--resume", *other)
        assert code == 2
        assert f"`--resume` must be typed with the options of the run in {tmp_path / 'run'}" in said
        assert " ".join(map(str, other)) in said
        assert "`like`" not in said
        assert "`shared`" not in said
    assert ended(jaxarc, capsys, *line, "--resume")[0] == 0


def test_two_tasks_of_one_id_are_told_with_a_command_that_works(
    task_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from jaxarc.cli import main as jaxarc

    folder = tmp_path / "many"
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "t.json").write_text(json.dumps(json.loads(task_file.read_text())["a"]))
    code, said = ended(jaxarc, capsys, "rollout", "--dataset", folder, "--environments", 2, "--steps", 2)
    assert code == 2
    (typed,) = re.findall(r"`jaxarc (data FOLDER [^`]+)`", said)
    out = tmp_path / "tasks.arcbank"
    line = typed.replace("FOLDER", str(folder)).replace("tasks.arcbank", str(out)).split()
    assert ended(jaxarc, capsys, *line)[0] == 0
    assert ended(jaxarc, capsys, "rollout", "--dataset", out, "--environments", 2, "--steps", 2)[0] == 0


def test_options_of_acbo_are_named_as_typed(capsys: pytest.CaptureFixture[str]) -> None:
    from acbo.cli import main as acbo

    code, said = ended(acbo, capsys, "train", "--width", 33)
    assert (code, "`--width` must be a multiple of 4; got 33" in said) == (2, True)
    code, said = ended(acbo, capsys, "eval", "--strategies", "foo")
    assert (code, "`--strategies` must be one of policy, random" in said) == (2, True)


TWO_ENDS = 'model = "a = N(0, 1); b = a + N(0, 1); c = a + N(0, 1)"\n'
DOSE = 'target = "y"\ndata = "rows.csv"\n[variables]\ndose = [0, 5]\ny = false\n'


@pytest.mark.parametrize(
    ("problem", "rows", "said", "typed"),
    [
        (TWO_ENDS, "", "`target` must be given", "target='b'\n" + TWO_ENDS),
        ('target = "Y"\nmodel = "Y = N(0, 1) + x"\n', "", "`model` in ", 'model = "x = N(0, 1); Y = x"'),
        ('graph = "dose -> y -> dose"\n' + DOSE, "", "`graph` in ", 'graph = "dose -> y"\n' + DOSE),
        (DOSE, "dose,y\n1,2\n2,much\n", "column 'y' has 'much' in row 2 of ", None),
        (DOSE, 'dose,y\n1,2\n2,"4,5"\n', "Write 4.5 with a point", None),
        (DOSE, "dose,y\n1,2\n2,\n", "row 2 of the data of ", None),
        (DOSE, "dose,y,id\n1,2,7\n", '"id" = false', DOSE + '"id" = false\n'),
    ],
)
def test_remedies_of_a_problem_are_words_of_its_file(
    problem: str, rows: str, said: str, typed: str | None, tmp_path: Path
) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    from acbo._commands.problem_file import read_problem

    (tmp_path / "rows.csv").write_text(rows or "dose,y\n1,2\n2,3\n")
    path = tmp_path / "problem.toml"
    path.write_text(problem)
    with pytest.raises(ValueError, match=re.escape(said)) as told:
        read_problem(path).start()
    assert "`text`" not in str(told.value)
    assert "frame" not in str(told.value)
    if typed is not None:
        path.write_text(typed)
        read_problem(path).start()


def test_seeds_outside_are_told_with_what_a_command_can_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The advice was functions of Python, `seeds_inside` and `random_seeds`."""
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    pytest.importorskip("h5netcdf", reason="h5netcdf is not installed")
    flow = (("y", "x"), np.full((4, 5), 0.01, np.float32), {"units": "m/s"})
    places = {name: (name, np.arange(n), {"units": "m"}) for name, n in (("y", 4.0), ("x", 5.0))}
    xarray.Dataset({"u": flow, "v": flow}, places).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    short = ("--span", 0, 1, "--times", 2)
    for corner, code in ((10, 2), (2, 0)):
        box = ("--bounds", corner, corner, 20, 20)
        ended, _, errors = command(capsys, "run", tmp_path / "a.nc", *box, *short)
        assert ended == code
        assert "Give `--bounds` or `--seeds` within the field, or draw them there in a problem file" in errors
        assert "seeds_inside" not in errors
    said = re.findall(r"`(seeds = {[^`]*})`", errors)[0]  # the remedy, as it stands
    (tmp_path / "p.toml").write_text(f'field = "a.nc"\nbounds = [2, 2, 20, 20]\n{said}\n')
    code, found, errors = command(capsys, "run", tmp_path / "p.toml", *short)
    assert code == 0, errors
    assert "began outside" not in found + errors


def test_bench_names_integrators_that_need_options(capsys: pytest.CaptureFixture[str]) -> None:
    """It ended in a traceback; what it advises in place of it runs."""
    for name in ("euler_maruyama", "inertial"):
        code, _, errors = command(capsys, "bench", "--integrators", name)
        assert code == 2
        assert f"`--integrators` must need no options; {name} needs" in errors
        typed = re.findall(r"`jaxtrace ([^`]+)`", errors)[0].split()
        code, said, errors = command(capsys, *typed, "--particles", 2, "--times", 2)
        assert code == 0, errors
        assert "particle-steps/s" in said
    code, _, errors = command(capsys, "bench", "--integrators", "rk5")
    assert (code, "`--integrators` must be one of" in errors) == (2, True)


def test_a_lattice_of_one_number_and_dates_of_trajectories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--lattice 3` was refused with "must be one number", and `info --since` did nothing."""
    path = tmp_path / "a.npz"
    line = ("run", "double_gyre", "--lattice", 3, "--times", 2, "--span", 0, 1, "--out", path)
    code, said, errors = command(capsys, *line)
    assert code == 0, errors
    assert "9 particles" in said
    assert (
        "from 2015-11-16 00:00:00 to 2015-11-16 00:00:01"
        in command(capsys, "info", path, "--since", "2015-11-16")[1]
    )


def test_the_commands_share_how_files_are_read() -> None:
    names = {name for one in get_args(jaxtrace.cli.Command) for name in get_args(one)[0].__dataclass_fields__}
    for option in ("velocity", "missing", "select", "keep_units", "dim", "slice_times", "since", "origin"):
        assert option in names
        for kind in (Info, Run, Plot):
            assert option in kind.__dataclass_fields__
