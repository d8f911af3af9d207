"""A known graph: causal Bayesian optimization in a plant whose flow sheet says what can act on what, but not how much.

Several valves may be set at once, at different prices. Yield is to be as large as the budget lets it become.
"""

import pandas as pd
from rich.console import Console

import acbo
from acbo.optimizer.simulators import ModelSimulator
from jaxworlds.runtime import configure

PLANT = acbo.parse_model("""
    feed = N(10, 1)
    steam = N(5, 1)
    heat = 2*steam - 0.5*feed + N(0, 0.5)
    mixing = N(3, 0.5)
    reaction = 1.5*heat + mixing + N(0, 0.5)
    residue = 0.8*feed - 0.3*reaction + N(0, 0.5)
    yield = 2*reaction - residue + N(0, 1)
    feed in [6, 14]; steam in [2, 8]; mixing in [1, 5]; residue in [0, 10]
    target yield
""")
FLOW_SHEET = """
    feed, steam -> heat
    heat, mixing -> reaction
    feed, reaction -> residue
    reaction, residue -> yield
"""


def main() -> None:
    configure()
    console = Console()
    plant = ModelSimulator(PLANT, seed=1)
    optimizer = acbo.Optimizer(
        [
            acbo.Variable("feed", low=6, high=14),
            acbo.Variable("steam", low=2, high=8, cost_per_unit=0.5),
            acbo.Variable("mixing", levels=(1, 3, 5)),
            acbo.Variable("residue", low=0, high=10, cost=5),
            "heat",
            "reaction",
            "yield",
        ],
        target="yield",
        objective="max",
        graph=FLOW_SHEET,
        data=pd.DataFrame([plant({}) for _ in range(20)]),
        simulator=plant,
        strategy="cbo",
        max_simultaneous=3,
        budget=60,
    )
    optimizer.run(6)
    advice = optimizer.recommend()
    truly, (best, most) = PLANT.effect(advice.do), PLANT.best(3, minimize=False)
    console.print(f"advice: {advice}", highlight=False, soft_wrap=True)
    console.print(
        f"truly {truly:.1f}; {PLANT.effect():.1f} if nothing is set; the best is {best} with {most:.1f}"
    )
    assert most - truly < 0.15 * (most - PLANT.effect())
    assert advice.do["steam"] > 7


if __name__ == "__main__":
    main()
