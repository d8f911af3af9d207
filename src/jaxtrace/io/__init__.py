"""Reading velocity fields from files and writing trajectories to them."""

from .cf.trajectories import trajectory_dataset as trajectory_dataset
from .dataset import load_optimized_dataset as load_optimized_dataset
from .dataset import open_dataset as open_dataset
from .files import DatasetError as DatasetError
from .slices import OpenedDataset as OpenedDataset
from .trajectory_files import load_trajectory as load_trajectory
from .trajectory_files import save_trajectory as save_trajectory
