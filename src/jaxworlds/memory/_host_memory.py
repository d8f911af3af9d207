"""Memory of the host process and machine, read from the operating system; needs no jax."""

import sys
from pathlib import Path


class MemoryUnknownError(RuntimeError):
    """The backend or the system does not tell how much memory there is or will be needed."""


def process_memory() -> tuple[int, int]:
    """Resident bytes of this process: now, and the most it ever had."""
    status = Path("/proc/self/status")
    if status.exists():
        rows = dict(line.split(":", 1) for line in status.read_text().splitlines())
        if "VmRSS" in rows:
            now = int(rows["VmRSS"].split()[0]) * 1024
            return now, max(now, int(rows.get("VmHWM", "0 kB").split()[0]) * 1024)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return peak, peak  # without /proc only the maximum is known


def host_memory_free(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes this process can still take: what the machine, its control group or `ulimit -v` has left."""
    meminfo = proc / "meminfo"
    if not meminfo.exists():  # not Linux
        try:
            import psutil
        except ImportError as error:
            raise MemoryUnknownError(
                "free host memory is unknown on this system. "
                "Install `jaxworlds[fast]` (psutil), or pass the limit."
            ) from error
        return int(psutil.virtual_memory().available)
    rows = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    available = rows.get("MemAvailable", rows["MemTotal"])
    return min([int(available.split()[0]) * 1024, *_group_rooms(proc, groups), *_address_rooms(proc)])


def _address_rooms(proc: Path) -> list[int]:
    """Bytes of addresses left, where `ulimit -v` bounds them."""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    sizes = proc / "self" / "statm"
    if limit == resource.RLIM_INFINITY or not sizes.exists():
        return []
    return [max(0, limit - int(sizes.read_text().split()[0]) * resource.getpagesize())]


def _group_rooms(proc: Path, groups: Path) -> list[int]:
    """Bytes left in each control group above this process (v2: `memory.max`; v1: `memory.limit_in_bytes`)."""
    listing = proc / "self" / "cgroup"
    rooms = []
    for line in listing.read_text().splitlines() if listing.exists() else []:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, limit_name, used_name, cache_name = groups, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            root, limit_name, used_name = groups / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache_name = "total_inactive_file"
        else:
            continue
        # Inside a container the listed path often does not exist below the mount: its root is then the group.
        folder = root / path.strip("/")
        for group in (folder, *folder.parents):
            if not group.is_relative_to(root):
                break
            limit = _number(group / limit_name)
            if limit is None or limit >= 2**60:  # "max", or the v1 spelling of it
                continue
            stat = group / "memory.stat"
            pairs = dict(row.split() for row in stat.read_text().splitlines()) if stat.exists() else {}
            cache = int(pairs.get(cache_name, 0))  # can be reclaimed
            used = (_number(group / used_name) or 0) - cache
            rooms.append(max(0, limit - used))
    return rooms


def _number(path: Path) -> int | None:
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else None
