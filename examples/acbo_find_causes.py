"""Find out from a log of observations and experiments what spoils a brew, and what to set so that it spoils less.

The brewery is simulated, so that the advice can be judged; everything that is learned comes from the log alone.
"""

from pathlib import Path

import jax
import numpy as np
import pandas as pd
from rich.console import Console

import acbo
from acbo.answers import probabilities_of
from acbo.pictures import edge_table

BREWERY = acbo.parse_model("""
    malt = N(50, 5)                                     # kg
    water = N(65, 3)                                    # temperature of the mash, degrees
    sugar = 0.2*malt + 0.4*water + N(0, 1)              # per cent
    yeast = N(100, 20)                                  # g
    warmth = 0.05*yeast + 0.6*sugar + N(0, 1.5)         # of the fermentation, degrees
    pressure = 0.1*warmth + N(0, 0.15)                  # bar
    sourness = 0.5*warmth - 0.02*yeast + N(0, 1)        # what nobody wants
    foam = 3*sourness + 8*pressure + N(0, 2)            # cm
    malt in [40, 60]; water in [60, 70]; yeast in [60, 140]; warmth in [22, 33]; pressure in [2, 4]; foam in [20, 70]
    target sourness
""")


def brew(rows: int, tried: int) -> pd.DataFrame:
    """The log: a column for each variable, and one that says what was set, if anything."""
    data = acbo.sample_mixed(BREWERY.scm, jax.random.key(3), rows, rows - tried)
    frame = acbo.to_frame(data, BREWERY.names)
    marks = np.asarray(data.intervened)[:, : len(BREWERY.names)]
    return frame.assign(was_set=[",".join(np.array(BREWERY.names)[row]) for row in marks])


def main() -> None:
    console = Console()
    log = brew(rows=160, tried=80)
    shown = log.iloc[[0, 1, -2, -1]].to_string(float_format="%.1f")
    console.print(shown, highlight=False, soft_wrap=True)

    # Who is most related to the sourness, and who causes it?
    observed = log[log.was_set == ""].drop(columns="was_set")
    related = observed.corr()["sourness"].drop("sourness").abs().sort_values(ascending=False)
    console.print(f"most correlated with the sourness: {related.index[0]}, {related.iloc[0]:.2f}")

    data, names = acbo.from_frame(log, target="sourness", intervened="was_set")
    exact = acbo.edge_posterior(data)
    quick = acbo.pretrained()(data)
    answers = {"teacher": probabilities_of(exact, names), "surrogate": probabilities_of(quick, names)}
    console.print(edge_table(answers, names, title="probability of each edge, in per cent"))
    for parents, probability in acbo.likely_parents(exact, names, most=3):
        console.print(f"direct causes of the sourness: {', '.join(parents) or 'none'} ({probability:.0%})")

    # What to do about it: a model along the likely graph, asked for the best thing to set.
    graph = acbo.likely_graph(exact, names)
    fitted = acbo.fit_linear_model(names, graph, data, ranges=BREWERY.ranges)
    advice, promised = fitted.best()
    truly, (best, least) = BREWERY.effect(advice), BREWERY.best()
    console.print(
        f"advice: set {advice}; sourness {promised:.2f} promised, {truly:.2f} true, {BREWERY.effect():.2f} if nothing is done; "
        f"the best would be {best} with {least:.2f}",
        highlight=False,
        soft_wrap=True,
    )
    assert related.index[0] == "foam"
    assert BREWERY.effect({"foam": 20.0}) == BREWERY.effect(), "foam is an effect: setting it changes nothing"
    assert acbo.likely_parents(exact, names)[0][0] == BREWERY.parents("sourness")
    assert truly - least < 0.2

    truth = np.asarray(BREWERY.scm.adjacency)[: len(names), : len(names)]
    picture = acbo.graph_svg(
        answers["teacher"],
        names,
        target="sourness",
        truth=truth,
        title="What the log says, green where it is so",
    )
    Path("causes.svg").write_text(picture)
    console.print("wrote causes.svg")


if __name__ == "__main__":
    main()
