"""Memory tracking under the names the guide teaches; the homes are in `jaxworlds.memory`."""

from jaxworlds.memory import track_memory as track_memory
from jaxworlds.memory import track_operation_memory as track_operation_memory
