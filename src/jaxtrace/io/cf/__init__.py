"""NetCDF files and xarray data sets by the CF conventions."""
