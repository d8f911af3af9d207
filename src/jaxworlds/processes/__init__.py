"""Several processes: who this one is, how they meet, how one notices that another is lost, and how a process ends."""

from ._start import start_processes as start_processes
