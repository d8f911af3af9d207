"""Find a treatment: a black box answers one patient at a time, experiments cost money, and nobody knows who causes what.

The patients are simulated, so that the advice can be judged; the optimizer sees only the rows.
"""

import random

import pandas as pd
from rich.console import Console

import acbo
from jaxworlds.runtime import configure

DICE = random.Random(3)

VARIABLES = [
    acbo.Variable("dose", low=0, high=10, cost=1, cost_per_unit=0.1),  # mg
    acbo.Variable("salt", levels=(2, 6, 10)),  # g per day
    acbo.Variable("exercise", low=0, high=5, cost=2),  # hours per week
    acbo.Variable("pulse", low=50, high=90, cost=0.5),
    acbo.Variable("age"),
    acbo.Variable("pressure"),
]


def patient(do: dict[str, float]) -> dict[str, float]:
    """One patient: what is not set takes its own course. The pulse follows the pressure and changes nothing."""
    age = DICE.gauss(50, 6)
    dose = do.get("dose", 3 + 0.1 * (age - 50) + DICE.gauss(0, 1))  # the old are given more
    salt = do.get("salt", DICE.choice([2.0, 6.0, 10.0]))
    exercise = do.get("exercise", 2.5 - 0.05 * (age - 50) + DICE.gauss(0, 0.6))
    pressure = expected_pressure(dose, salt, exercise, age) + DICE.gauss(0, 2)
    pulse = do.get("pulse", 70 + 0.9 * (pressure - 130) + DICE.gauss(0, 1))
    return {
        "dose": dose,
        "salt": salt,
        "exercise": exercise,
        "pulse": pulse,
        "age": age,
        "pressure": pressure,
    }


def expected_pressure(dose: float, salt: float, exercise: float, age: float = 50) -> float:
    return 130 - 2 * (dose - 3) + 0.8 * (salt - 6) - 1.5 * (exercise - 2.5) + 0.6 * (age - 50)


def main() -> None:
    configure()
    console = Console()
    seen = pd.DataFrame([patient({}) for _ in range(24)])
    related = seen.corr()["pressure"].drop("pressure").abs().sort_values(ascending=False)
    console.print(f"most correlated with the pressure: {related.index[0]}", highlight=False)
    optimizer = acbo.Optimizer(
        VARIABLES,
        target="pressure",
        objective="min",
        data=seen,
        simulator=patient,
        graph={"forbidden": [(name, "age") for name in ("dose", "salt", "exercise", "pulse", "pressure")]},
        budget=10,
    )
    history = optimizer.run()
    made = history[history["set"] != ""]
    console.print(made.to_string(float_format="%.1f"), highlight=False, soft_wrap=True)
    console.print(f"{optimizer.spent:g} of 10 spent on {len(made)} experiments")
    advice = optimizer.recommend()
    usual = {"dose": 3.0, "salt": 6.0, "exercise": 2.5}
    before, after = expected_pressure(**usual), expected_pressure(**{**usual, **advice.do})
    console.print(f"advice: {advice}", highlight=False)
    console.print(f"truly: {before:.1f} if nothing is done, {after:.1f} with the advice", highlight=False)
    optimizer.report("treatment.html")
    console.print("wrote treatment.html")
    assert related.index[0] == "pulse", "which is an effect: setting it changes nothing"
    assert advice.do == {"dose": 10.0}
    assert advice.low - 2 < after < advice.high + 2
    assert optimizer.spent <= 10


if __name__ == "__main__":
    main()
