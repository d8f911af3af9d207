"""Several processes of one run: launchers, joining, detecting lost processes, and exit codes."""

from ._start import start_processes as start_processes
