"""The machine: its processor, its cores, and what a compiled program depends on."""

import hashlib
import importlib.metadata
import os
import platform
from pathlib import Path


def program_key() -> str:
    """Key of compiled CPU programs: version and processor, since machines may share a home folder."""
    cpu = hashlib.blake2b(_cpu_description().encode(), digest_size=4).hexdigest()
    return f"jaxlib-{importlib.metadata.version('jaxlib')}-{platform.machine()}-{cpu}"


def _cpu_description() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    keep = ("model name", "flags", "Features", "CPU part")
    return "\n".join(dict.fromkeys(line for line in lines if line.startswith(keep)))


def device_words(kind: str, platform: str) -> str:
    """A device as text: its name, with its platform if that adds something."""
    return kind if kind == platform else f"{kind} ({platform})"


def cores() -> int:
    """Cores this process may use, which in a container is fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_name() -> str:
    """Model name of the processor."""
    for line in _cpu_description().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
