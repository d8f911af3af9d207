"""What all commands share: how a line becomes a command, how it ends, and what is said to people and to scripts.

Exit codes: 0 done, 1 something is not healthy, 2 the input was wrong, 75 another host is missing or lost, 130 ended by
Ctrl-C, 143 ended by SIGTERM.
"""

import _thread
import abc
import codecs
import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from .._version import __version__
from ..processes.exits import (
    BAD_INPUT,
    LOST,
    PIPE_CLOSED,
    STOPPED,
    TERMINATED,
    Terminated,
    end_at_once,
    sigterm_raises,
)
from ..runtime import RuntimeConflictError, configure, start_processes
from ..special_files import special_file
from ..text import printable
from ._help import tidy, wrapped_output
from ._options import spelled_for

# What a wrong file, option or machine raises, with a message for people; anything else is our mistake and keeps its traceback.
_WRONG = (ValueError, ImportError, OSError, RuntimeConflictError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Computing(abc.ABC):
    """A command that computes."""

    def run(self) -> int:
        """Settle the runtime, then do the work."""
        configure()
        return self.compute()

    @abc.abstractmethod
    def compute(self) -> int:
        """The work of the command; the exit code."""

    def own_options(self) -> dict[str, Any]:
        """The options of this command without those that `Spreading` has."""
        shared = {field.name for field in dataclasses.fields(Spreading)}
        return {name: value for name, value in vars(self).items() if name not in shared}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spreading(Computing):
    """A command that computes on as many devices and hosts as are given."""

    devices: int | None = None
    """Devices to spread the work over, those of all hosts together; a CPU is split into as many. One unless given."""
    hosts: int = 1
    """Processes that run this same command together, one on each host or several on one."""
    host: int | None = None
    """Which of them this is, from 0; SLURM and Open MPI tell it by themselves."""
    coordinator: str | None = None
    """Where host 0 is reached by all, as name:port; SLURM and Open MPI tell it by themselves."""
    patience: int = 120
    """Seconds to wait for the other hosts at the start."""
    silence: int = 60
    """Seconds without a sign of life after which a host counts as lost; the end of a process is noticed at once."""

    def run(self) -> int:
        """Settle the runtime, meet the other hosts, then do the work; only host 0 speaks."""
        self._settle()
        if self.hosts == 1:
            _note_tasks()
            return self.compute()
        self._join()
        import jax

        if jax.process_index() == 0:
            with _our_output():
                return self.compute()
        with (
            open(os.devnull, "w") as nowhere,
            _our_output(),
            contextlib.redirect_stdout(nowhere),
            _no_warnings(),
        ):
            return self.compute()

    def _join(self) -> None:
        from ..processes.launchers import told
        from ..processes.membership import code_facts, lifeline

        if told() is None and (self.host is None or self.coordinator is None):
            by_slurm = (
                "start it with `srun`" if "SLURM_JOB_ID" in os.environ else "let SLURM or Open MPI start it"
            )
            raise ValueError(
                f"`--hosts {self.hosts}` needs `--host`, the number of this one, and `--coordinator`, where host 0 is reached; "
                f"got {self.host} and {self.coordinator}. Give both, or {by_slurm}."
            )
        package = type(self).__module__.split(".")[0]
        apart = ("host", "coordinator", "patience", "silence", "hosts")
        options = {
            f"`--{name.replace('_', '-')}`": str(value)
            for name, value in vars(self).items()
            if name not in apart
        }
        same = {
            "the command": f"{package} {type(self).__name__.lower()}",
            **options,
            **code_facts("jaxworlds", package),
        }
        start_processes(
            self.coordinator,
            self.hosts,
            self.host,
            timeout_s=self.patience,
            silence_s=self.silence,
            same=same,
        )
        line = lifeline()
        if line is not None:
            line.advice = self.advice

    @property
    def advice(self) -> str:
        """What people can do when the run ended with a host that was lost."""
        if not hasattr(self, "resume"):
            return "Nothing was saved on the way: start the command again."
        folder = getattr(self, "checkpoint", None)
        if folder is None:
            return "Start the command again; with `--checkpoint` it could go on."
        return (
            f"What was saved to {folder} is whole: the same command with --resume goes on, "
            "on these or on another number of hosts."
        )

    def _settle(self) -> None:
        for name in ("devices", "hosts", "patience", "silence"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`--{name}` must be at least 1; got {value}.")
        if self.hosts == 1 and (self.host is not None or self.coordinator is not None):
            raise ValueError("`--host` and `--coordinator` go with `--hosts`, how many there are; got 1.")
        if self.devices is not None and self.devices % self.hosts:
            raise ValueError(
                f"`--devices` must be a multiple of the {self.hosts} hosts, which share them; got {self.devices}."
            )
        own = None if self.devices is None else self.devices // self.hosts
        if own is not None and own > _DEVICES_OF_CPU:
            raise ValueError(
                f"`--devices` must be at most {_DEVICES_OF_CPU} for each host, since each takes its own threads; got "
                f"{self.devices} for {self.hosts} host{'s' * (self.hosts > 1)}."
            )
        configure(cpu_devices=own)

    @property
    def mesh(self) -> Any:
        """The devices to spread worlds over; None for one device."""
        from ..batching import world_mesh

        return None if self.devices is None and self.hosts == 1 else world_mesh(self.devices)


def is_first() -> bool:
    """Whether this process writes files: one of several does."""
    import jax

    return jax.process_index() == 0


def run_command(
    commands: Any, program: str, description: str, arguments: list[str] | None = None
) -> NoReturn:
    """Read the command line, run the command, and exit with its code; wrong input ends with one line and no traceback."""
    import tyro

    from_shell = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    description = f"{description} Version {__version__}, which `--version` prints alone."
    tidy(commands)
    degrade_output()
    with heeded_reader(), wrapped_output(), plain_option_errors():
        if arguments == ["--version"]:
            say(f"{program} {__version__}")
            sys.exit(0)
        command = tyro.cli(
            commands,
            args=arguments or ["--help"],  # who types the bare name wants to know what there is
            prog=program,
            description=description,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    try:
        with sigterm_raises():
            options = vars(command) if hasattr(command, "__dict__") else {}
            demand_plain_files(options)
            demand_sizes(options)
            code = _run(command)
            sys.stdout.flush()  # a reader that has gone is noticed here, not while Python ends
        sys.exit(code)
    except KeyboardInterrupt as error:
        terminated = isinstance(error, Terminated)
        text = "stopped by SIGTERM" if terminated else "stopped"
        _end(text, TERMINATED if terminated else STOPPED, at_once=from_shell)
    except BrokenPipeError:
        _end_unread()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich makes 1 of it
            _end_unread()
        raise
    except MemoryError as error:
        _end(f"{program}: {out_of_memory(command, error)}", BAD_INPUT)
    except RuntimeError as error:
        if isinstance(error, _WRONG):
            _end(
                f"{program}: {typed_message(command, error)}",
                LOST if _is_missing(error) else BAD_INPUT,
            )
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        _end(f"{program}: {out_of_memory(command, error)}", BAD_INPUT)
    except _WRONG as error:
        code = LOST if _is_missing(error) else BAD_INPUT
        _end(f"{program}: {typed_message(command, error)}", code)


def typed_message(command: Any, error: BaseException) -> str:
    """What is wrong in a line, with remedies that can be typed at the command line."""
    text = one_line(error)
    misfit = re.match(
        r"(`\w+` must be what the checkpointed run had|.*: the file does not fit `like`:)", text
    )
    if misfit and getattr(command, "resume", False):
        return (
            f"`--resume` must be typed with the options of the run in {getattr(command, 'checkpoint', None)}, and the same data; "
            f"that run had other ones ({_other_than_saved(command)}). Type those, or give `--checkpoint` another folder."
        )
    return spelled_for(command, text)


def _other_than_saved(command: Computing) -> str:
    """The options that say what a run computes, with their values: some of them are not those of the run that was saved."""
    how = {*_WRITTEN, "checkpoint_every", "resume", "json"}
    given = [(name, value) for name, value in command.own_options().items() if name not in how]
    said = [f"--{name.replace('_', '-')} {value}" for name, value in given if value not in (None, (), "")]
    return f"now {', '.join(said)}"


@contextlib.contextmanager
def heeded_reader() -> Iterator[None]:
    """Meanwhile a reader that has gone, such as `head`, ends the process without a word, and a full disk with a line."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here, and not while Python ends
    except BrokenPipeError:
        _end_unread()
    except OSError as error:
        print(f"the output cannot be written: {error.strerror}", file=sys.stderr)
        _end_unread(BAD_INPUT)


def _end_unread(code: int = PIPE_CLOSED) -> NoReturn:
    """End where a reader such as `head` has seen enough."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def out_of_memory(command: Any, error: BaseException) -> str:
    """One line about memory that was not enough: what was asked for, and what would fit where the command can tell."""
    needed = re.search(
        r"(?:allocat\w*|request\w*)[^0-9]{0,20}([0-9.]+ ?[KMGT]?i?B?(?:ytes)?)", str(error), re.IGNORECASE
    )
    asked = f" ({needed[1].strip()} asked for at once)" if needed else ""
    if refused := re.search(
        r"needs ([0-9.]+ \w+) beyond its arguments.*? and ([0-9.]+ \w+) are free", str(error)
    ):
        asked = f" ({refused[1]} needed, {refused[2]} free)"
    remedy = "Ask for less at a time: fewer environments, particles, samples or steps."
    tell = getattr(command, "what_fits", None)
    with contextlib.suppress(Exception):  # an estimate that fails must not hide what happened
        remedy = (tell() if tell is not None else "") or remedy
    return f"out of memory{asked}. {remedy}"


_WRITTEN = ("out", "replay", "report", "checkpoint", "save")
"""Options that name what a command writes."""


def demand_plain_files(options: dict[str, Any]) -> None:
    """Raise where an input is a named pipe, a socket or a device: to open one may wait for ever, or never end."""
    for name, value in options.items():
        many = value if isinstance(value, list | tuple) else (value,)
        for one in many if name not in _WRITTEN else ():
            if not isinstance(one, str | Path) or not str(one) or "\0" in str(one):
                continue
            if kind := special_file(one):
                raise ValueError(
                    f"`{name}` must be a file or a folder; {one} is {kind}. Write what comes from it to a file first."
                )


_LARGEST = 2**31 - 1
"""The largest whole number that a program compiled for 32 bits counts to."""
_MOST = {"seed": 2**32 - 1, "hosts": 2**16, "devices": 2**20}
_ROOM = ("environments",)
"""Options of which a number that is too large is told with one that the memory holds."""
_DEVICES_OF_CPU = 512


def demand_sizes(options: dict[str, Any]) -> None:
    """Raise where an option has a whole number that no program counts to; beyond 32 bits a seed would be another one."""
    for name, value in options.items():
        many = value if isinstance(value, list | tuple) else (value,)
        for one in many if name not in _ROOM else ():
            if not isinstance(one, int) or isinstance(one, bool):
                continue
            most = _MOST.get(name, _LARGEST)
            typed = f"`--{name.replace('_', '-')}`"
            if name == "seed" and not 0 <= one <= most:
                raise ValueError(f"{typed} must be from 0 to {most}; got {one}.")
            if one > most:
                raise ValueError(f"{typed} must be at most {most}; got {one}.")


_SIMPLER = str.maketrans(
    dict.fromkeys("─━═╌┄", "-") | dict.fromkeys("│┃║╎┆", "|") | dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼╞╡╪┏┓┗┛┡┩┳┻╇", "+")
    | {"×": "x", "…": "...", "−": "-", "–": "-", "—": "-", "°": " deg", "µ": "u", "μ": "u", "→": "->", "←": "<-"}
    | {"≥": ">=", "≤": "<=", "±": "+-", "·": "-", "²": "^2", "³": "^3", "█": "#", "▏": "|", "•": "*", "‘": "'", "’": "'"}
    | {"“": '"', "”": '"', "√": "sqrt", "✓": "ok"}
)  # fmt: skip


def _simplify(error: UnicodeError) -> tuple[str, int]:
    """What a terminal that knows fewer characters is shown in place of one that it lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lost = error.object[error.start : error.end].translate(_SIMPLER)
    return lost.encode(error.encoding, "replace").decode(error.encoding), error.end


def degrade_output() -> None:
    """Let output that knows no Unicode (`LANG=C`) be shown in simpler characters instead of ending in an error.

    Where there is no output at all (`>&-`), what is said goes nowhere.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - as long as the process
    codecs.register_error("jaxworlds-simplify", _simplify)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (stream.errors in ("strict", "surrogateescape")):
            stream.reconfigure(errors="jaxworlds-simplify")


_TYPES = {"int": "a whole number", "float": "a number", "Path": "a path", "bool": "True or False"}
_BAD_VALUE = re.compile(
    r"(?:invalid literal for int\(\) with base 10|could not convert string to float): ('[^']*')"
)


@contextlib.contextmanager
def plain_option_errors() -> Iterator[None]:
    """Meanwhile a value that an option cannot take is told in a line: the option, what it must be, and what was given."""
    kept = io.StringIO()
    try:
        with contextlib.redirect_stderr(kept):
            yield
    except SystemExit:
        text = kept.getvalue()
        flat = " ".join(re.sub(r"[│╭╮╰╯─|+]", " ", text).split())
        option = re.search(r"Error parsing (--[\w-]+|[A-Z][\w.-]*)", flat)
        given = _BAD_VALUE.search(flat)
        if option and given:
            kinds = [words for kind, words in _TYPES.items() if f"<class '{kind}'>" in flat]
            kinds = kinds or ["a whole number" if "invalid literal" in flat else "a number"]
            text = f"`{option[1]}` must be {' or '.join(kinds)}; got {given[1]}.\n"
        sys.stderr.write(text)
        raise
    sys.stderr.write(kept.getvalue())


def _run(command: Any) -> int:
    with plain_warnings(command), heeded_interrupts():
        return command.run()


@contextlib.contextmanager
def heeded_interrupts() -> Iterator[None]:
    """Meanwhile a Ctrl-C that comes while garbage is collected is not lost: Python would only print it and go on."""
    usual = sys.unraisablehook

    def again(lost: Any) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            return usual(lost)
        # A moment later, when the main thread is out of the collector.
        return threading.Timer(0.05, _interrupt_main).start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = usual


def _interrupt_main() -> None:
    """Ctrl-C for the main thread, also where it sleeps or waits."""
    main = threading.main_thread().ident
    if main is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _end(text: str, code: int, at_once: bool = False) -> NoReturn:
    """End with a line; where there are other hosts, with them."""
    line = _joined()
    if line is not None:
        line.fail(text, code)
    print(shown(text), file=sys.stderr)
    if at_once:  # threads of XLA may still be compiling, and an interpreter that ends under them crashes
        end_at_once(code)
    sys.exit(code)


def _joined() -> Any:
    """The connection with the other hosts; None without any."""
    module = sys.modules.get("jaxworlds.processes.membership")
    return None if module is None else module.lifeline()


def _is_missing(error: BaseException) -> bool:
    module = sys.modules.get("jaxworlds.processes._lifeline")
    return module is not None and isinstance(error, module.MissingHostError)


def _note_tasks() -> None:
    """Say so where a launcher started several processes that know nothing of each other."""
    from ..processes.launchers import told

    place = told()
    if place is not None and place.processes > 1 and place.process == 0:
        print(
            f"note: {place.launcher} started {place.processes} processes, and each does all of the work; "
            f"`--hosts {place.processes}` makes them share it.",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _our_output() -> Iterator[None]:
    """Meanwhile what libraries write to the output goes to the error stream: the output is for what the command says.

    Gloo, by which CPUs of several hosts talk, says there who is connected with whom.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # no output at all
        yield
        return
    os.dup2(2, 1)
    ours = os.fdopen(kept, "w", encoding="utf-8", closefd=False)
    try:
        with contextlib.redirect_stdout(ours):
            yield
    finally:
        ours.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def one_line(error: BaseException) -> str:
    """The message of an error without line breaks; its kind where it says nothing."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def plain_warnings(command: Any = None) -> Iterator[None]:
    """Meanwhile warnings are a line each on stderr, without the place in our code that means nothing to people.

    Remedies in them are spelled as options of `command`.
    """
    usual = warnings.showwarning

    def show(message: Any, category: Any, *place: Any, **_: Any) -> None:
        text = one_line(message)
        print(shown(f"note: {text if command is None else spelled_for(command, text)}"), file=sys.stderr)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


def checked_suffix(path: Path, known: tuple[str, ...], option: str) -> str:
    """The suffix of a file that a command is to write: one of those known, in a folder that is there."""
    if path.suffix.lower() not in known:
        raise ValueError(f"`--{option}` must end in {', '.join(known)}; got {path.name!r}.")
    if not path.absolute().parent.is_dir():
        raise ValueError(
            f"`--{option}` must lie in a folder that exists; {path.parent} does not. Make it first."
        )
    if not os.access(path.absolute().parent, os.W_OK):
        raise ValueError(
            f"`--{option}` must lie in a folder that can be written; {path.absolute().parent} cannot. Take another one."
        )
    return path.suffix.lower()


def checkpoint_option(folder: Path | None, every: float) -> Any:
    """The `Checkpoint` that `--checkpoint` and `--checkpoint-every` ask for; None without a folder."""
    from ..rollout import Checkpoint

    if not 0 <= every < float("inf"):
        raise ValueError(f"`--checkpoint-every` must be at least 0 seconds; got {every}.")
    return None if folder is None else Checkpoint(folder, every_seconds=every)


def print_json(value: Any) -> None:
    """One JSON object on stdout, for scripts; numbers that JSON does not know become null."""
    print(json.dumps(_finite(value), indent=1, allow_nan=False, default=_plain))


def say(text: str) -> None:
    """A line for people, in one piece however narrow the terminal is."""
    print(shown(text), flush=True)


def shown(text: str) -> str:
    """The text with a space for every character that a terminal would obey: names in files may hold some."""
    return "\n".join(map(printable, text.split("\n")))


def people_console() -> Any:
    """A console as wide as the terminal; a file or a pipe has no width to keep to, and a cut table could not be read there."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=200)


@contextlib.contextmanager
def working(words: str) -> Iterator[Callable[[str], Any]]:
    """Meanwhile a terminal shows that something goes on, on stderr; call what is given to say what."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich.text import Text

    with console.status(Text(words)) as status:
        yield lambda said: status.update(Text(said))


def show_table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]], note: str = "") -> None:
    """A table: words on the left of their column, figures on the right."""
    from rich.table import Table

    console = people_console()
    table = Table()
    for number, name in enumerate(head):
        figures = all(not row[number] or row[number][0] in "+-0123456789" for row in rows)
        table.add_column(name, justify="right" if figures and number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(shown, row))
    for part in (shown(title), table, shown(note)):
        if part:
            console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))


def show_facts(facts: dict[str, str]) -> None:
    """Names and values, one pair to a line."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        say(f"{name:<{width}}  {value}")


def machine() -> dict[str, Any]:
    """Where a figure was measured, as much of it as a reader needs."""
    from ..measuring import environment

    found = environment()
    names = ("backend", "device_kind", "device_count", "cpu_model", "cores", "python", "jax", "date")
    return {name: found[name] for name in names}


def machine_words(found: dict[str, Any]) -> str:
    """`machine` as a phrase."""
    return (
        f"{found['device_count']} × {found['device_kind']} ({found['cpu_model']}, {found['cores']} cores), "
        f"jax {found['jax']}, Python {found['python']}"
    )


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    return value


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
