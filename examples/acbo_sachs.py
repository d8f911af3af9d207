"""Proteins in a cell: what to do to lower one of them, from a small table of measurements and a few experiments.

The names and the network are those of Sachs and others (Science 2005), of which the eight proteins around the kinases PKA and
PKC are kept. The numbers come from a linear model along that network, written here: a stand-in for the lab, which answers the
experiments that the optimizer asks for. With a table of your own, read it by `pandas.read_csv`.
"""

import numpy as np
import pandas as pd
from rich.console import Console

import acbo
from acbo.pictures import edge_table
from jaxworlds.runtime import configure

CELL = acbo.parse_model("""
    PKC = N(0, 1)
    PKA = 0.4*PKC + N(0, 1)
    Raf = 0.6*PKC - 0.7*PKA + N(0, 0.7)
    Mek = 0.9*Raf + 0.3*PKC - 0.3*PKA + N(0, 0.5)
    Erk = 0.8*Mek + 0.4*PKA + N(0, 0.6)
    Akt = 0.9*Erk + 0.5*PKA + N(0, 0.5)
    P38 = 0.9*PKC + 0.3*PKA + N(0, 0.6)
    Jnk = 0.7*PKC + 0.3*PKA + N(0, 0.7)
    Raf in [-2, 2]; Mek in [-2, 2]; PKA in [-2, 2]; PKC in [-2, 2]; Akt in [-2, 2]
    target Erk
""")


def main() -> None:
    configure()
    console = Console()
    table = acbo.to_frame(CELL.sample(26, key=0), CELL.names)
    optimizer = acbo.Optimizer(
        {name: CELL.ranges.get(name) for name in CELL.names},
        target="Erk",
        data=table,
        experiments=6,
    )
    for number in range(6):
        experiment = optimizer.ask()  # one row: what to set, NaN for what is left alone
        do = {name: float(value) for name, value in experiment.iloc[0].drop("cost").dropna().items()}
        measured = np.asarray(CELL.sample(1, key=100 + number, do=do).values)[0, : len(CELL.names)]
        result = pd.DataFrame([measured], columns=CELL.names, index=experiment.index).astype(float)
        optimizer.tell(result)
        console.print(f"set {do}: Erk {float(result['Erk'].iloc[0]):.2f}", highlight=False)

    found = optimizer.posterior()
    truth = np.asarray(CELL.scm.adjacency)[: len(CELL.names), : len(CELL.names)]
    console.print(
        edge_table({"truth": truth, "current_belief": found.edges.to_numpy()}, CELL.names, least=0.5)
    )
    console.print(f"direct causes of Erk: {found.parents.head(3).round(2).to_dict()}", highlight=False)
    advice = optimizer.recommend()
    best, least = CELL.best()
    truly = CELL.effect(advice.do)
    console.print(
        f"advice: {advice}; truly {truly:.2f}; the best is {best} with {least:.2f}",
        highlight=False,
        soft_wrap=True,
    )
    assert found.parents.index[0] == "Mek"
    assert truly - least < 0.3


if __name__ == "__main__":
    main()
