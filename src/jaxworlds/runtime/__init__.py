"""The runtime: settings that must precede JAX's backend, the compilation cache, and a report of what runs.

Nothing here imports jax until a function is called, so `from jaxworlds.runtime import configure` can be the
first line of a program. `import jax` starts no backend either; the first array or `jax.devices()` does.
"""

from ._cache import cache_home as cache_home
from ._machine import DeviceInfo as DeviceInfo
from ._machine import RuntimeReport as RuntimeReport
from ._machine import cores as cores
from ._machine import cpu_name as cpu_name
from ._machine import device_words as device_words
from ._machine import program_key as program_key
from ._machine import runtime_report as runtime_report
from ._settings import Device as Device
from ._settings import Dtype as Dtype
from ._settings import RuntimeConflictError as RuntimeConflictError
from ._settings import Settings as Settings
from ._settings import backend_started as backend_started
from ._settings import configure as configure
from ._settings import settings as settings
