"""Pictures of trajectories: figures of paths and positions, animations as files or as a page with a player."""

from .animation import animate as animate
from .fields import plot_speed as plot_speed
from .paths import plot_paths as plot_paths
from .paths import plot_positions as plot_positions
from .player import player_html as player_html
from .terminal import terminal_picture as terminal_picture
