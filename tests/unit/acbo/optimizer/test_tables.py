"""Tables of the world: what is wrong in one is said with its column, and what makes advice doubtful is warned of."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import acbo

pytestmark = pytest.mark.usefixtures("quick_compile")

VARIABLES: dict[Any, Any] = {"dose": (0, 10), "age": None, "pain": None}


def table(rows: int = 20) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    dose, age = rng.uniform(0, 10, rows), rng.normal(40, 5, rows)
    return pd.DataFrame({"dose": dose, "age": age, "pain": 8 - 0.5 * dose + 0.1 * age})


def optimizer(data: Any = None, **options: Any) -> acbo.Optimizer:
    return acbo.Optimizer(
        **{"variables": VARIABLES, "target": "pain", "strategy": "random", "data": data} | options
    )


def with_cell(cell: object, column: str = "dose", row: int = 3) -> pd.DataFrame:
    frame = table().astype(object)
    frame.loc[row, column] = cell
    return frame


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (with_cell("45,5"), "'dose'.*'45,5'.*Write 45.5 with a point.*decimal=\",\""),
        (with_cell("12", "age"), "'age'.*'12'.*pandas.to_numeric\\(frame\\['age'\\]\\)"),
        (with_cell("high"), "'dose'.*'high'.*frame.drop\\(columns=\\['dose'\\]\\)"),
    ],
    ids=["decimal comma", "text that reads like a number", "category"],
)
def test_text_in_a_column_is_said_with_its_column_and_row(frame: pd.DataFrame, said: str) -> None:
    with pytest.raises(ValueError, match=r"`data\[3\]` must have a number for " + said):
        optimizer(frame)
    with pytest.raises(ValueError, match="`frame` must hold numbers; column " + said) as error:
        acbo.from_frame(frame, target="pain")
    assert "in row 3" in str(error.value)


def test_a_whole_column_of_text_numbers_is_not_taken_silently() -> None:
    frame = table().assign(age=table()["age"].round().astype(int).astype(str))
    with pytest.raises(ValueError, match=r"column 'age' has '\d\d' in row 0"):
        acbo.from_frame(frame, target="pain")


def test_what_is_missing_stays_missing_and_numbers_of_objects_are_taken() -> None:
    data, _ = acbo.from_frame(table().astype(object), target="pain")
    np.testing.assert_allclose(np.asarray(data.values)[:, :3], table(), rtol=1e-6)
    with pytest.raises(ValueError, match=r"missing|finite|NaN"):
        acbo.from_frame(with_cell(None), target="pain")


@pytest.mark.parametrize("path", ["rows.csv", Path("rows.csv")])
def test_a_path_is_no_table(path: str | Path) -> None:
    with pytest.raises(TypeError, match=r"`data` must be a data frame, not a path.*read_csv\('rows.csv'\)"):
        optimizer(path)
    with pytest.raises(TypeError, match=r"`rows` must be a data frame, not a path"):
        optimizer().tell(path)
    with pytest.raises(TypeError, match=r"`frame` must be a data frame, not a path"):
        acbo.from_frame(path, target="pain")  # pyright: ignore[reportArgumentType]


def test_a_table_of_to_frame_is_called_data_too() -> None:
    data, names = acbo.from_frame(table(), target="pain")
    frame = acbo.to_frame(data, names)
    optimizer(frame)
    with pytest.raises(
        ValueError, match=r"`data` must have a number in every entry; got a missing one in 'dose'"
    ):
        optimizer(frame.assign(dose=np.nan))


def test_data_without_the_target_are_told_so_with_their_columns() -> None:
    data, names = acbo.from_frame(table(), target="pain")
    for frame in (acbo.to_frame(data, names), table()):
        said = r"`data` must have a column of the target, 'pain'; got dose, age\. Add it: data=frame\.assign"
        with pytest.raises(ValueError, match=said):
            optimizer(frame.drop(columns="pain"))


def test_extra_columns_are_named_with_what_to_do() -> None:
    with pytest.raises(
        ValueError, match=r"the column 'batch' and 1 more\..*drop\(columns=\['batch', 'day'\]\)"
    ):
        optimizer(table().assign(batch=1, day=2))
    with pytest.raises(ValueError, match=r"the column 'pian'\. Did you mean 'pain'"):
        optimizer(table().rename(columns={"pain": "pian"}))


def test_columns_may_be_whole_numbers() -> None:
    frame = table().set_axis([0, 1, 2], axis=1)
    data, names = acbo.from_frame(frame, target=2)
    assert names == ("0", "1", "2")
    assert int(data.target) == 2
    made = optimizer(frame, variables={0: (0, 10), 1: None, 2: None}, target=2)
    todo = made.ask()
    made.tell(pd.DataFrame({0: todo["0"], 1: [40.0], 2: [5.0]}, index=todo.index))
    assert made.spent > 0 or made.history()["experiment"].notna().sum() == 1


def test_columns_that_are_whole_numbers_are_named_where_something_was_set() -> None:
    frame = table().set_axis([0, 1, 2], axis=1)
    variables: dict[Any, Any] = {0: (0, 10), 1: None, 2: None}
    marked = frame.assign(**{"3": ""}).rename(columns={"3": 3})
    marked.loc[17:, 3] = "0"
    numbers = marked.assign(**{"3": np.where(marked[3] == "0", 0.0, np.nan)}).drop(columns=3)
    marks = pd.DataFrame({"0": [False] * 17 + [True] * 3})
    for given, intervened in ((marked, 3), (marked, "3"), (numbers, "3"), (frame, marks)):
        data, names = acbo.from_frame(given, target=2, intervened=intervened)
        assert names == ("0", "1", "2")
        np.testing.assert_array_equal(np.asarray(data.intervened)[:, 0], [False] * 17 + [True] * 3)
    made = optimizer(marked, variables=variables, target=2, intervened=3)
    assert [row.do for row in made.state.rows[-4:]] == [(), ("0",), ("0",), ("0",)]
    for do in (0, [0], np.int64(0)):
        made.tell({0: 3.0, 1: 40.0, 2: 5.0}, do=do)
        assert made.state.rows[-1].do == ("0",)


def test_whole_numbers_of_any_length_are_names_of_columns() -> None:
    frame = table().set_axis([1234567, 1, 2], axis=1)
    data, _ = acbo.from_frame(frame.assign(was_set=1234567), target=2, intervened="was_set")
    assert np.asarray(data.intervened)[:, 0].all()
    with pytest.raises(ValueError, match=r"`frame: was_set` must be one of 1234567, 1, 2"):
        acbo.from_frame(frame.assign(was_set=10**400), target=2, intervened="was_set")


def test_remedies_for_columns_that_are_whole_numbers_can_be_typed() -> None:
    frame = table().set_axis([0, 1, 2], axis=1).assign(**{"7": 1.0}).rename(columns={"7": 7})
    code = r"(frame\.rename\(columns=str\)\.drop\(columns=\['7'\]\))"
    variables: dict[Any, Any] = {0: (0, 10), 1: None, 2: None}
    with pytest.raises(ValueError, match=code) as error:
        optimizer(frame, variables=variables, target=2)
    found = re.search(code, str(error.value))
    assert found
    optimizer(eval(found[1], {"frame": frame}), variables=variables, target=2)
    with pytest.raises(ValueError, match=r"'0'.*frame = frame\.apply\(pandas\.to_numeric\)"):
        acbo.from_frame(frame.astype({0: str}), target=2)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("12", "write 12 without quotes"),
        (
            pd.Timestamp("2020-01-01"),
            r"Turn it into numbers, or leave 'dose' out of `variables` and, by frame\.drop\(columns=\['dose'\]\), of the",
        ),
        ([1.0, 2.0], r"Write pandas\.DataFrame\(\.\.\.\) around columns of values"),
    ],
)
def test_every_cell_that_is_no_number_has_a_remedy(cell: object, said: str) -> None:
    with pytest.raises(ValueError, match=r"`rows\[0\]` must have a number for 'dose'.*" + said):
        optimizer().tell({"dose": cell, "age": 40, "pain": 5})


def test_a_target_that_is_constant_but_for_rounding_is_said() -> None:
    with pytest.warns(UserWarning, match="the target 'pain' is 5 in all 20 rows"):
        optimizer(table().assign(pain=5 + 1e-15 * np.arange(20)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer(table().assign(pain=5 + 1e-6 * np.arange(20)))


def test_a_constant_target_is_said_at_once_and_with_every_advice() -> None:
    with pytest.warns(UserWarning, match="the target 'pain' is 5 in all 20 rows"):
        made = optimizer(table().assign(pain=5.0))
    with pytest.warns(UserWarning, match="any advice is a guess"):
        made.recommend()
    made.tell({"dose": 3, "age": 40, "pain": 7.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.recommend()


def test_a_range_of_the_target_is_not_ignored_silently() -> None:
    for described in ((0, 100), [0, 1], {"low": 0, "high": 1}):
        with pytest.warns(UserWarning, match=r"the target 'pain' no range or levels.*Write \{'pain': None\}"):
            made = optimizer(variables=VARIABLES | {"pain": described})
        assert [v.name for v in made.state.settings.settable] == ["dose"]


def test_more_variables_than_the_policy_was_trained_on_are_said() -> None:
    from acbo.optimizer.notices import trained_variables

    most = trained_variables()
    names = [f"v{i}" for i in range(most + 1)]
    variables = dict.fromkeys(names[1:], (-1, 1)) | {"v0": None}
    with pytest.warns(UserWarning, match=f"trained on at most {most} variables; this problem has {most + 1}"):
        acbo.Optimizer(variables, target="v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        acbo.Optimizer(variables, target="v0", strategy="expected_improvement")
        acbo.Optimizer({name: variables[name] for name in names[:most]}, target="v0")


def test_more_variables_than_the_surrogate_was_trained_on_are_said() -> None:
    surrogate = acbo.pretrained(precision="float32")
    assert surrogate.trained_variables == 10
    wide = acbo.dataset(np.random.default_rng(0).standard_normal((12, 11)))
    with pytest.warns(UserWarning, match="trained on at most 10 variables; these data have 11"):
        surrogate(wide)
    padded, _ = acbo.from_frame(table(), target="pain", size=11)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        surrogate(padded)


@pytest.mark.parametrize(
    "marks",
    [
        pd.DataFrame({"dose": ["False", "True"] * 10}),
        pd.DataFrame({"dose": [np.nan, 1.0] * 10}),
        table()[["dose"]],
    ],
    ids=["text", "missing", "values"],
)
def test_marks_that_are_no_truth_values_do_not_count_as_set(marks: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="`intervened` must mark what was set by True and False"):
        optimizer(table(), intervened=marks)
    with pytest.raises(ValueError, match="`intervened` must mark what was set by True and False"):
        acbo.from_frame(table(), target="pain", intervened=marks)


def test_marks_of_ones_and_none_are_truth_values() -> None:
    for marks in ([1, 0] * 10, [True, None] * 10, np.array([True, False] * 10)):
        made = optimizer(table(), intervened=pd.DataFrame({"dose": marks}))
        assert [row.do for row in made.state.rows[:2]] == [("dose",), ()]


def test_a_list_with_a_name_for_each_row_is_not_taken_for_what_every_row_sets() -> None:
    with pytest.raises(ValueError, match=r"name each variable once.*frame\.assign\(do="):
        optimizer(table(), intervened=["dose", "age"] * 10)
    made = optimizer(table().assign(do=["dose", ""] * 10))
    assert [row.do for row in made.state.rows[:2]] == [("dose",), ()]
    with pytest.raises(ValueError, match=r"got shape .* of list"):
        optimizer(table(), intervened=[["dose"], []] * 10)


@pytest.mark.parametrize("said", [True, 1, np.nan])
def test_what_was_set_is_said_by_names(said: Any) -> None:
    row = {"dose": 3, "age": 40, "pain": 5, "do": said}
    if said != said:
        made = optimizer()
        made.tell(row)
        assert made.state.rows[-1].do == ()
        return
    with pytest.raises(ValueError, match="must say what was set by names joined by commas"):
        optimizer().tell(row)


@pytest.mark.parametrize(
    "cell", [np.timedelta64(5, "D"), np.datetime64("2024-01-01"), np.arange(3)], ids=["span", "date", "array"]
)
def test_cells_of_numpy_that_are_no_numbers_are_told(cell: object) -> None:
    with pytest.raises(ValueError, match="must have a number for 'age'"):
        optimizer([{"dose": 1, "age": cell, "pain": 3}])


@pytest.mark.parametrize("cell", [None, pd.NA, pd.NaT, "", "nan"])
def test_missing_cells_have_the_remedy_of_missing_cells(cell: object) -> None:
    with pytest.raises(ValueError, match=r"'age'.*Leave the row out if it was not measured"):
        optimizer(with_cell(cell, "age"))


def test_numbers_whose_squares_overflow_are_refused() -> None:
    with pytest.raises(ValueError, match=r"below 1e\+100 for 'pain'.*another unit"):
        optimizer(table().assign(pain=lambda frame: frame["pain"] * 1e155))
    with pytest.raises(ValueError, match="whole number; got inf"):
        optimizer().tell({"experiment": np.inf, "age": 40, "pain": 5})


def test_columns_of_several_levels_have_a_remedy_that_works() -> None:
    frame = pd.concat({"lab": table()}, axis=1)
    with pytest.raises(ValueError, match=r"frame\.columns = frame\.columns\.get_level_values\(-1\)"):
        optimizer(frame)
    frame.columns = frame.columns.get_level_values(-1)
    assert len(optimizer(frame).state.rows) == 20


def test_the_history_of_one_optimization_is_data_for_another() -> None:
    made = optimizer(table())
    made.tell({"dose": 3, "age": 40, "pain": 5}, do="dose")
    history = made.history()
    with pytest.raises(
        ValueError, match=r"`data=history\.drop\(columns='experiment'\)` and `intervened='set'`"
    ):
        optimizer(history)
    again = optimizer(history.drop(columns="experiment"), intervened="set")
    assert [row.do for row in again.state.rows] == [row.do for row in made.state.rows]
    with pytest.raises(ValueError, match="`intervened='set'`"):
        optimizer(history.drop(columns="experiment"))


def test_two_levels_that_are_the_ends_of_a_range_are_said() -> None:
    with pytest.warns(UserWarning, match=r"20 of 20 rows have other values.*\{'dose': \(0, 10\)\}"):
        optimizer(table(), variables={**VARIABLES, "dose": [0, 10]})


def test_a_known_graph_names_variables_and_leads_to_the_target() -> None:
    with pytest.raises(ValueError, match="`graph` must be one of dose, age, pain; got 'known'"):
        optimizer(table(), graph="known")
    for graph in ("dose -> age", [], "age -> pain"):
        with pytest.warns(
            UserWarning, match="by the `graph` given no variable that can be set is a cause of 'pain'"
        ):
            optimizer(table(), graph=graph)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer(table(), graph="dose -> age -> pain")
