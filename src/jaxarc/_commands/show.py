"""`jaxarc show`: a task or a saved episode in the terminal, as a picture, or as plain data."""

import html
from pathlib import Path
from typing import Any

from jaxworlds.commands import demand_suffix, print_json, say
from jaxworlds.store import atomic_write

from ..tasks.parser import RawTask
from ..utils.visualization.archive import EpisodeArchive
from ..utils.visualization.records import EpisodeRecord
from .sources import demand_id, load_tasks

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>
  :root {{ color-scheme: light dark }}
  body {{ font: 16px system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }}
  figure {{ margin: 0 }}
  svg {{ max-width: 100%; height: auto; border-radius: .5rem }}
</style>
<h1>{title}</h1>
<figure>{picture}</figure>
</html>
"""


def show(task: str, dataset: str, answers: bool, out: Path | None, json: bool) -> int:
    """Show what `task` names; with `out` as a picture, with `json` as data."""
    found = read_episode(Path(task)) if task.endswith(".npz") else find_task(task, dataset)
    if json:
        print_json(_data(found, answers))
    if out is not None:
        write_picture(found, out, answers)
        if not json:
            say(f"wrote {out}")
    if out is None and not json:
        _print(found, answers)
    return 0


def find_task(name: str, dataset: str) -> RawTask:
    """The task with this id in a data set, or the only one of a JSON file."""
    if name.endswith(".json"):
        if not Path(name).exists():
            raise FileNotFoundError(f"`task` must be an id or a path that exists; {name} is not there.")
        tasks = load_tasks(name, "task")
        if len(tasks) > 1:
            raise ValueError(
                f"`task` must name one task; {name} holds {len(tasks)}. Write `jaxarc show ID --dataset {name}`, with an id "
                f"such as {tasks.ids[0]}."
            )
        return tasks.raw(tasks.ids[0])
    tasks = load_tasks(dataset, "--dataset")
    return tasks.raw(demand_id(tasks, name, "task"))


def read_episode(path: Path) -> EpisodeRecord:
    """An episode that `jaxarc rollout --replay NAME.npz` saved."""
    if not path.is_file():
        raise FileNotFoundError(f"`task` must be a task or a saved episode; {path} is not there.")
    try:
        return EpisodeArchive(path.parent, compression=False).load(path.stem)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} must be a saved episode; it cannot be read ({error}).") from error


def write_episode(episode: EpisodeRecord, path: Path) -> None:
    """Write an episode by the file's suffix: a page that replays it, plain data, or what `read_episode` reads."""
    from ..utils.visualization.replay import episode_html, replay_data

    kind = demand_suffix(path, (".html", ".json", ".npz"), "replay")
    if kind == ".html":
        episode_html(episode, path)
    elif kind == ".npz":
        EpisodeArchive(path.parent, compression=False).save(path.stem, episode)
    else:
        import json

        with atomic_write(path, "w") as file:
            file.write(json.dumps(replay_data(episode), allow_nan=False))


def write_picture(found: RawTask | EpisodeRecord, path: Path, answers: bool) -> None:
    """A task or an episode as SVG, PNG or a page."""
    from ..utils import visualization as pictures

    kind = demand_suffix(path, (".svg", ".png", ".html"), "out")
    if isinstance(found, EpisodeRecord):
        if kind == ".html":
            pictures.episode_html(found, path)
            return
        made = pictures.episode_png(found) if kind == ".png" else pictures.episode_svg(found)
    else:
        name = found.id
        made = (
            pictures.task_png(found, title=name, answers=answers)
            if kind == ".png"
            else pictures.task_svg(found, title="" if kind == ".html" else name, answers=answers)
        )
        if kind == ".html":
            made = _PAGE.format(title=html.escape(name), picture=made)
    with atomic_write(path) as file:
        file.write(made if isinstance(made, bytes) else made.encode())


def _print(found: RawTask | EpisodeRecord, answers: bool) -> None:
    from ..utils.visualization import print_episode, print_step, print_task

    if isinstance(found, EpisodeRecord):
        for number, step in enumerate(found.steps, start=1):
            print_step(step, title=f"{number}")
        print_episode(found)
    else:
        print_task(found, title=found.id, answers=answers)


def _data(found: RawTask | EpisodeRecord, answers: bool) -> Any:
    if isinstance(found, EpisodeRecord):
        from ..utils.visualization.replay import replay_data

        return replay_data(found)
    return task_json(found, answers)


def task_json(task: RawTask, answers: bool) -> dict[str, Any]:
    """A task as ARC writes it; test outputs only with `answers`, and where they are known."""
    train = [{"input": a.tolist(), "output": b.tolist()} for a, b in task.train]
    test: list[dict[str, Any]] = [
        {"input": a.tolist()} | ({"output": b.tolist()} if answers and b is not None else {})
        for a, b in task.test
    ]
    return {"train": train, "test": test}
