"""Reading velocity fields from files and writing trajectories to them."""

from .cf_trajectories import trajectory_dataset as trajectory_dataset
from .dataset import load_optimized_dataset as load_optimized_dataset
from .dataset import open_dataset as open_dataset
from .opened import OpenedDataset as OpenedDataset
from .saving import load_trajectory as load_trajectory
from .saving import save_trajectory as save_trajectory
from .series import DatasetError as DatasetError
