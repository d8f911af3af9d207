"""From a command line to a command and its exit code.

Exit codes: 0 done, 1 something is not healthy, 2 the input was wrong, 75 another host is missing or lost, 130 ended by
Ctrl-C, 143 ended by SIGTERM.
"""

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn

from .._version import __version__
from ..processes import exits
from ..runtime import RuntimeConflictError
from ._command import demand_plain_files, demand_sizes
from ._help import tidy, wrapped_output
from ._messages import out_of_memory, plain_option_errors, plain_warnings, typed_message
from ._output import degrade_output, plain_text, say

# What a wrong file, option or machine raises, with a message for people; anything else is our mistake and keeps its traceback.
_WRONG = (ValueError, ImportError, OSError, RuntimeConflictError)


def run_command(
    commands: Any, program: str, description: str, arguments: list[str] | None = None
) -> NoReturn:
    """Parse the command line, run the command, and exit with its code; wrong input prints one line and no traceback."""
    import tyro

    from_shell = arguments is None
    arguments = sys.argv[1:] if arguments is None else arguments
    description = f"{description} Version {__version__}, which `--version` prints alone."
    tidy(commands)
    degrade_output()
    with end_with_reader(), wrapped_output(), plain_option_errors():
        if arguments == ["--version"]:
            say(f"{program} {__version__}")
            sys.exit(0)
        command = tyro.cli(
            commands,
            args=arguments or ["--help"],  # the bare name shows the help
            prog=program,
            description=description,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    try:
        with exits.sigterm_raises():
            options = vars(command) if hasattr(command, "__dict__") else {}
            demand_plain_files(options)
            demand_sizes(options)
            with plain_warnings(command), keep_interrupts():
                code = command.run()
            sys.stdout.flush()  # a reader that has gone is noticed here, not while Python ends
        sys.exit(code)
    except exits.Terminated:
        _end("stopped by SIGTERM", exits.TERMINATED, at_once=from_shell)
    except KeyboardInterrupt:
        _end("stopped", exits.STOPPED, at_once=from_shell)
    except BrokenPipeError:
        _end_unread()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich makes 1 of it
            _end_unread()
        raise
    except _WRONG as error:
        lifelines = sys.modules.get("jaxworlds.processes._lifeline")  # not imported where there is one host
        lost = lifelines is not None and isinstance(error, lifelines.MissingHostError)
        _end(f"{program}: {typed_message(command, error)}", exits.LOST if lost else exits.BAD_INPUT)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        _end(f"{program}: {out_of_memory(command, error)}", exits.BAD_INPUT)


@contextlib.contextmanager
def end_with_reader() -> Iterator[None]:
    """Within this block, a closed pipe (`| head`) ends the process silently, and a full disk with one line."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here, and not while Python ends
    except BrokenPipeError:
        _end_unread()
    except OSError as error:
        print(f"the output cannot be written: {error.strerror}", file=sys.stderr)
        _end_unread(exits.BAD_INPUT)


def _end_unread(code: int = exits.PIPE_CLOSED) -> NoReturn:
    """Exit after the reader of a pipe, such as `head`, has closed it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


@contextlib.contextmanager
def keep_interrupts() -> Iterator[None]:
    """Within this block, Ctrl-C during a garbage collection is not lost; Python would only print it and go on."""
    usual = sys.unraisablehook

    def interrupt_main() -> None:
        main = threading.main_thread().ident
        if main is not None and hasattr(signal, "pthread_kill"):  # also where it sleeps or waits
            signal.pthread_kill(main, signal.SIGINT)
        else:
            _thread.interrupt_main()

    def again(lost: Any) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            return usual(lost)
        # A moment later, when the main thread is out of the collector.
        return threading.Timer(0.05, interrupt_main).start()

    sys.unraisablehook = again
    try:
        yield
    finally:
        sys.unraisablehook = usual


def _end(text: str, code: int, at_once: bool = False) -> NoReturn:
    """Print a line and exit; tell the other hosts, if there are any."""
    membership = sys.modules.get("jaxworlds.processes.membership")
    if membership is not None and (line := membership.lifeline()) is not None:
        line.fail(text, code)
    print(plain_text(text), file=sys.stderr)
    if at_once:  # threads of XLA may still be compiling, and an interpreter that ends under them crashes
        exits.end_at_once(code)
    sys.exit(code)
