"""Several processes of one run: launchers, joining, detecting lost processes, and exit codes."""

from .membership import start_processes as start_processes
