"""Batches: choose their size, pad them, map over them in pieces, spread them over devices."""

from .buckets import BucketedBatches as BucketedBatches
from .buckets import chunked_map as chunked_map
from .meshes import assert_on_device as assert_on_device
from .meshes import leaf_name as leaf_name
from .meshes import map_with_axes as map_with_axes
from .meshes import on_each_device as on_each_device
from .meshes import per_device as per_device
from .meshes import shard_worlds as shard_worlds
from .meshes import spread_over as spread_over
from .meshes import spreading_mesh as spreading_mesh
from .meshes import world_mesh as world_mesh
from .meshes import world_shardings as world_shardings
from .plans import BatchPlan as BatchPlan
from .plans import BatchTrial as BatchTrial
from .plans import plan_batch_size as plan_batch_size
