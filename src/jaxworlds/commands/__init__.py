"""What the command lines share, and the commands of the core: demo, doctor and bench."""

from .command_line import Computing as Computing
from .command_line import Spreading as Spreading
from .command_line import checked_suffix as checked_suffix
from .command_line import checkpoint_option as checkpoint_option
from .command_line import degrade_output as degrade_output
from .command_line import demand_plain_files as demand_plain_files
from .command_line import demand_sizes as demand_sizes
from .command_line import heeded_interrupts as heeded_interrupts
from .command_line import heeded_reader as heeded_reader
from .command_line import is_first as is_first
from .command_line import machine as machine
from .command_line import machine_words as machine_words
from .command_line import one_line as one_line
from .command_line import out_of_memory as out_of_memory
from .command_line import people_console as people_console
from .command_line import plain_option_errors as plain_option_errors
from .command_line import plain_warnings as plain_warnings
from .command_line import print_json as print_json
from .command_line import run_command as run_command
from .command_line import say as say
from .command_line import show_facts as show_facts
from .command_line import show_table as show_table
from .command_line import shown as shown
from .command_line import typed_message as typed_message
from .command_line import working as working
