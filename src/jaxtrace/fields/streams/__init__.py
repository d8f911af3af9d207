"""Streamed fields: series of which a few slices at a time lie on the device, read while a run goes on."""

from .ring_field import RingField as RingField
from .ring_field import RingPlan as RingPlan
from .ring_keeper import RingKeeper as RingKeeper
from .slices import AbstractSlices as AbstractSlices
from .slices import ArraySlices as ArraySlices
from .slices import FileSlices as FileSlices
from .slices import FunctionSlices as FunctionSlices
from .slices import SliceError as SliceError
from .streamed_field import StreamedField as StreamedField
