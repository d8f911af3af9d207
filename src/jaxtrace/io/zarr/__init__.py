"""Zarr stores: zarr-python reads the format, behind a guard against damaged stores."""
