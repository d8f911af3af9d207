"""The run-time type checker of the tests: beartype, with an int accepted where a float is annotated, as in PEP 484."""

from beartype import BeartypeConf
from beartype import beartype as _beartype

beartype = _beartype(conf=BeartypeConf(is_pep484_tower=True))
