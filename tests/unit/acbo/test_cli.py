"""The command `acbo`: typed and piped answers, simulators, resumption, pictures in the terminal, and clear errors."""

import csv
import io
import json
import warnings
from pathlib import Path

import pytest

from acbo._commands.problem_file import read_problem
from acbo.cli import main
from acbo.optimizer.state import read_state
from acbo.policy.policy_network import policy_metadata
from acbo.strategies.trained_policy import load_policy
from acbo.surrogate.weights import pretrained_path

pytestmark = pytest.mark.usefixtures("quick_compile")

TYPED = """
target = "pain"
strategy = "random"
experiments = 3
[variables]
dose = [0, 10]
coat = {levels = [0, 1, 4], cost = 2.0}
age = false
pain = false
"""
MODEL = '''
strategy = "random"
experiments = 4
observations = 6
graph = "known"
model = """
    dose = N(5, 1)
    heat = 0.5*dose + N(0, 0.3)
    pain = 10 - heat + N(0, 0.3)
    dose in [0, 10]; heat in [0, 5]; cost heat = 2 + 0.5*heat
    target pain
"""
'''


def run_cli(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def problem(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "problem.toml"
    file.write_text(text)
    return file


def test_values_are_typed_and_the_rest_is_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = problem(tmp_path, TYPED)
    # An experiment leaves three of the four variables to measure. The second is skipped, and the third is not made.
    monkeypatch.setattr("sys.stdin", io.StringIO("1\nmuch\n2\nnan\n3\nskip\n4\nstop\n"))
    assert run_cli("optimize", file) == 0
    shown = capsys.readouterr().out
    assert "must be a finite number; got 'much'" in shown
    assert "got 'nan'" in shown
    assert "leave, and measure" in shown
    assert "experiment 2 is pending" in shown
    assert "recommended: set" in shown
    state = read_state(tmp_path / "problem.state.json")
    assert [row.experiment for row in state.rows] == [0]
    assert sorted(v for v in state.rows[0].values if v not in state.levels(state.rows[0]).values()) == [
        1,
        2,
        3,
    ]
    assert state.cancelled == (1,)
    assert [p.experiment for p in state.pending] == [2]

    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n3\n"))  # and then nothing more comes
    assert run_cli("optimize", file) == 0
    shown = capsys.readouterr().out
    assert "going on with" in shown
    after = read_state(tmp_path / "problem.state.json")
    assert [row.experiment for row in after.rows] == [0, 2]
    assert after.rows[1].do == tuple(state.pending[0].do)
    assert len(after.pending) == 1

    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n3\n"))
    assert run_cli("optimize", file, "--report", tmp_path / "page.html") == 0
    assert "used up" in capsys.readouterr().out
    assert "<h2>Experiments</h2>" in (tmp_path / "page.html").read_text()


def test_names_with_units_in_brackets_are_shown_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'target = "yield [g]"\nstrategy = "random"\n[variables]\n"flow [m]" = [0, 10]\n'
    file = problem(tmp_path, text + '"rate [/h]" = false\n"yield [g]" = false\n')
    monkeypatch.setattr("sys.stdin", io.StringIO("stop\n"))
    assert run_cli("optimize", file) == 0
    asked = capsys.readouterr().out
    assert run_cli("show", tmp_path / "problem.state.json") == 0
    shown = capsys.readouterr().out
    assert "least yield [g]" in shown
    assert "flow [m] → yield [g]" in shown
    for name in ("flow [m] ", "rate [/h] ", "yield [g] "):
        assert name in asked
        assert name in shown


def test_a_model_is_simulated_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, whole, parts = problem(tmp_path, MODEL), tmp_path / "whole.json", tmp_path / "parts.json"
    assert run_cli("optimize", file, "--state", whole) == 0
    for _ in range(3):
        assert run_cli("optimize", file, "--state", parts, "--trials", "2") == 0
    assert "recommended: " in capsys.readouterr().out
    assert read_state(parts) == read_state(whole)
    state = read_state(whole)
    assert [row.given for row in state.rows] == [True] * 6 + [False] * 4
    assert state.settings.names == ("dose", "heat", "pain")
    assert state.settings.variable("heat", "name").price(2.0) == 3.0
    assert state.settings.graph.required == (("dose", "heat"), ("heat", "pain"))

    assert run_cli("show", whole) == 0
    shown = capsys.readouterr().out
    assert "dose → heat" in shown
    assert "best so far: " in shown
    assert "4 experiments" in shown
    assert run_cli("show", file) == 0
    assert "2 + 0.5 per unit" in capsys.readouterr().out
    assert run_cli("show", whole, "--json") == 0
    saved = json.loads(capsys.readouterr().out)
    assert (saved["kind"], saved["experiments"], saved["remaining"], saved["pending"]) == (
        "optimization",
        4,
        0,
        [],
    )
    assert ["dose", "heat", 1.0] in saved["edges"]
    assert run_cli("optimize", file, "--state", whole, "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["recommended"] == saved["recommended"]
    assert again["state"] == str(whole)
    assert run_cli("show", file, "--json") == 0
    assert [v["name"] for v in json.loads(capsys.readouterr().out)["variables"]] == ["dose", "heat", "pain"]

    file.write_text(MODEL.replace("[0, 5]", "[0, 6]"))
    assert run_cli("optimize", file, "--state", whole) == 2
    assert "`variables` in" in capsys.readouterr().err
    file.write_text(MODEL.replace("experiments = 4", "experiments = 5"))
    assert run_cli("optimize", file, "--state", whole) == 0
    assert len(read_state(whole).made) == 5


def test_a_function_and_a_benchmark_are_simulators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plant_of_the_test.py").write_text(
        "def simulate(do):\n    x = do.get('x', 0.5)\n    return {'x': x, 'y': 1 - x}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "rows.csv").write_text("x,y,was_set\n0.2,0.8,\n0.4,0.6,x\n")
    text = """
        target = "y"
        strategy = "random"
        experiments = 2
        data = "rows.csv"
        intervened = "was_set"
        simulator = "plant_of_the_test:simulate"
        variables = {x = [0, 1], y = false}
    """
    state = tmp_path / "state.json"
    assert run_cli("optimize", problem(tmp_path, text), "--state", state) == 0
    rows = read_state(state).rows
    assert [row.do for row in rows] == [(), ("x",), ("x",), ("x",)]
    assert all(row.values[1] == pytest.approx(1 - row.values[0]) for row in rows)

    toy = read_problem(problem(tmp_path, 'benchmark = "toy"\nstrategy = "random"\ngraph = "known"'))
    assert toy.optimum == -2.1718
    assert toy.simulator is not None
    assert toy.simulator({"Z": -3.0})["Z"] == -3.0
    settings = toy.settings()
    assert (settings.target, settings.objective, settings.graph.required) == (
        "Y",
        "min",
        (("X", "Z"), ("Z", "Y")),
    )
    complete = read_problem(problem(tmp_path, 'benchmark = "complete"\nstrategy = "random"\ngraph = "known"'))
    assert not {"U1", "U2"} & set(complete.settings().names)
    assert ("C", "D") in complete.settings().graph.required
    capsys.readouterr()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("target = ", "must be TOML"),
        ('tarjet = "y"', "Did you mean 'target'?"),
        ('target = "y"', "must say `variables`"),
        (TYPED.replace("[0, 10]", "[0, 5, 10]"), "dose = {levels = [0, 5, 10]}"),
        (TYPED.replace('"random"', '"rundom"'), "Did you mean 'random'?"),
        ("observations = 3\n" + TYPED, "`observations` must come from a simulator"),
        ('data = "none.csv"\n' + TYPED, "is not there"),
        ('simulator = "nowhere_at_all"\n' + TYPED, "'module:function'"),
        ('simulator = "nowhere_at_all:f"\n' + TYPED, "No module named 'nowhere_at_all'"),
        ('benchmark = "toy"\nmodel = "X -> Y"', "got model and benchmark"),
        ('benchmark = "tay"', "Did you mean 'toy'?"),
        ("target = 2\n[variables]\n0 = [0, 1]\n2 = false", 'must be text; got 2. Write target = "2".'),
    ],
)
def test_wrong_problems_end_with_a_sentence(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("optimize", problem(tmp_path, text)) == 2
    caught = capsys.readouterr()
    assert said in caught.err
    assert "Traceback" not in caught.err


def test_what_a_table_or_a_range_has_wrong_is_said_in_the_words_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("stop\n"))
    (tmp_path / "semicolons.csv").write_text("dose;pain\n1,5;2,5\n")
    table = problem(tmp_path, 'data = "semicolons.csv"\n' + TYPED)
    assert run_cli("optimize", table) != 0
    assert "its cells are separated by semicolons" in capsys.readouterr().err
    ranged = problem(tmp_path, TYPED.replace("pain = false", "pain = [0, 10]"))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run_cli("optimize", ranged) == 0
    assert 'Write "pain" = false under [variables]' in capsys.readouterr().err


def test_typed_values_and_json_do_not_go_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("optimize", problem(tmp_path, TYPED), "--json") == 2
    assert "`--json` needs a simulator" in capsys.readouterr().err
    assert run_cli("optimize", problem(tmp_path, MODEL), "--report", tmp_path / "none" / "page.html") == 2
    assert "`--report` must lie in a folder that exists" in capsys.readouterr().err


def test_ctrl_c_ends_a_simulated_optimization_with_its_own_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tired_plant.py").write_text(
        "made = []\ndef simulate(do):\n    made.append(do)\n    if len(made) > 2:\n        raise KeyboardInterrupt\n"
        "    return {'x': do.get('x', 0.5), 'y': 1.0 - do.get('x', 0.5)}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    text = """
        target = "y"
        strategy = "random"
        experiments = 5
        simulator = "tired_plant:simulate"
        variables = {x = [0, 1], y = false}
    """
    state = tmp_path / "state.json"
    assert run_cli("optimize", problem(tmp_path, text), "--state", state) == 130
    caught = capsys.readouterr()
    assert "stopped" in caught.err
    assert "recommended: set x" in caught.out
    assert len(read_state(state).made) == 2
    assert len(read_state(state).pending) == 1


def test_weights_are_shown_and_other_files_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("show", pretrained_path()) == 0
    shown = capsys.readouterr().out
    assert "acbo-surrogate-1" in shown
    assert "numbers" in shown
    assert run_cli("show", pretrained_path(), "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["format"], facts["numbers"]) == ("weights", "acbo-surrogate-1", 382_484)
    (tmp_path / "other.json").write_text(json.dumps({"a": 1}))
    assert run_cli("show", tmp_path / "other.json") == 2
    assert "must be a saved optimization" in capsys.readouterr().err
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 100)
    assert run_cli("show", tmp_path / "bad.safetensors") == 2
    assert "must be a safetensors file; its header claims" in capsys.readouterr().err
    assert run_cli("show", tmp_path / "none.json") == 2
    assert "none.json" in capsys.readouterr().err


def test_a_policy_is_trained_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--updates", "1", "--models", "8", "--group", "8", "--width", "8", "--layers", "1", "--size", "3"]
    assert run_cli("train", "--out", tmp_path / "none" / "mine.safetensors", *tiny) == 2
    assert "folder that exists" in capsys.readouterr().err
    assert run_cli("train", "--out", tmp_path / "mine.npz", *tiny) == 2
    assert "`--out` must end in .safetensors" in capsys.readouterr().err
    file = tmp_path / "mine.safetensors"
    assert run_cli("train", "--out", file, *tiny, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["updates"], told["episodes"], told["outcome"]) == (1, 64, "finished")
    assert load_policy(file).network.config.width == 8
    story = policy_metadata(file)["metadata"]
    assert (story["updates"], story["episodes"], story["outcome"]) == (1, 64, "finished")


def test_strategies_are_compared_on_the_same_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cells.csv"
    given = ["--strategies", "random", "--sizes", "3", "--families", "chain", "--models", "4"]
    assert run_cli("eval", "default", *given, "--out", file) == 0
    shown = capsys.readouterr().out
    assert "4 models" in shown
    with file.open() as lines:
        policy, other = csv.DictReader(lines)
    assert (policy["strategy"], other["strategy"], other["family"]) == ("policy", "random", "chain")
    assert float(policy["minus_policy"]) == 0
    gap = float(other["regret"]) - float(policy["regret"])
    assert float(other["minus_policy"]) == pytest.approx(gap, abs=1e-6)
    assert f"{gap:+.4f}" in shown
    assert float(policy["regret"]) >= -1e-3
    assert run_cli("eval", "default", *given, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in told["strategies"]] == ["policy", "random"]
    assert told["strategies"][1]["minus_policy"] == pytest.approx(gap, abs=1e-6)
    assert run_cli("eval", "default", "--families", "chian") == 2
    assert "Did you mean 'chain'?" in capsys.readouterr().err
    assert run_cli("eval", tmp_path / "none.safetensors") == 2
    assert "is not there" in capsys.readouterr().err


def test_the_next_experiment_is_timed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli("bench", "--variables", "3", "--rows", "10", "--repeats", "2") == 0
    shown = capsys.readouterr().out
    assert "3 variables, 10 rows" in shown
    for name in ("policy", "cbo, graph known"):
        row = next(line for line in shown.splitlines() if f" {name} " in line)
        first, middle, slowest = (float(part) for part in row.split("│")[2:5])
        assert first > 0
        assert 0 < middle <= slowest
    assert run_cli("bench", "--variables", "3", "--rows", "10", "--repeats", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["strategy"] for row in told["strategies"]] == ["policy", "cbo, graph known"]
    assert all(0 < row["median_seconds"] <= row["slowest_seconds"] for row in told["strategies"])
    assert run_cli("bench", "--repeats", "0") == 2
    assert "`--repeats` must be at least 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('graph = "known"\n' + TYPED, "'known' stands for those of a `model` or a `benchmark`"),
        (TYPED.replace("[0, 10]", "true"), "by [low, high], {levels = [...]} or false"),
        ('data = "rows.csv"\n' + TYPED, "its cells are separated by tabs"),
    ],
    ids=["graph known", "range true", "tabs"],
)
def test_mistakes_in_a_problem_have_remedies_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    (tmp_path / "rows.csv").write_text("dose\tcoat\tage\tpain\n1\t0\t40\t3\n")
    assert run_cli("optimize", problem(tmp_path, text)) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_numbers_beyond_what_is_made_for_are_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Before: the compiler was still at work after three minutes.
    assert run_cli("eval", "--sizes", "1000", "--models", "2") == 2
    assert "2 at least and 64 at most; got (1000,)" in capsys.readouterr().err
    assert run_cli("train", "--size", "200", "--out", tmp_path / "a.safetensors") == 2
    assert "`--size` must be at most 64; got 200" in capsys.readouterr().err
    assert run_cli("optimize", problem(tmp_path, MODEL), "--trials", "-1") == 2
    assert "`--trials` must be at least 0; got -1" in capsys.readouterr().err
