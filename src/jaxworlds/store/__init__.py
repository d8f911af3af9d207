"""States, compressed objects by key, and memory-mapped arrays in files; damaged files are refused."""

from ._container import DAMAGED as DAMAGED
from ._container import MisfitError as MisfitError
from ._container import StoreError as StoreError
from ._container import atomic_write as atomic_write
from ._folders import atomic_folder as atomic_folder
from ._keyed import CompressedStorage as CompressedStorage
from ._leaves import Header as Header
from ._leaves import LeafInfo as LeafInfo
from ._mapped import device_rows as device_rows
from ._mapped import open_array as open_array
from ._mapped import read_archive as read_archive
from ._mapped import read_rows as read_rows
from ._mapped import save_array as save_array
from .states import content_hash as content_hash
from .states import load_state as load_state
from .states import read_header as read_header
from .states import save_state as save_state
