"""Memory tracking under the names the guide teaches; the homes are in `jaxworlds.leaks`."""

from jaxworlds.leaks import track_memory as track_memory
from jaxworlds.leaks import track_operation_memory as track_operation_memory
