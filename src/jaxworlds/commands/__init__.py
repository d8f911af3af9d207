"""What the command lines share, and the commands of the core: demo, doctor and bench."""

from ..processes.exits import STOPPED as STOPPED
from ._command import Command as Command
from ._command import DistributedCommand as DistributedCommand
from ._command import checkpoint_option as checkpoint_option
from ._command import demand_plain_files as demand_plain_files
from ._command import demand_sizes as demand_sizes
from ._command import demand_suffix as demand_suffix
from ._command import is_first as is_first
from ._line import end_with_reader as end_with_reader
from ._line import keep_interrupts as keep_interrupts
from ._line import run_command as run_command
from ._messages import one_line as one_line
from ._messages import out_of_memory as out_of_memory
from ._messages import plain_option_errors as plain_option_errors
from ._messages import plain_warnings as plain_warnings
from ._messages import typed_message as typed_message
from ._output import degrade_output as degrade_output
from ._output import machine as machine
from ._output import machine_words as machine_words
from ._output import people_console as people_console
from ._output import plain_text as plain_text
from ._output import print_json as print_json
from ._output import say as say
from ._output import show_facts as show_facts
from ._output import show_status as show_status
from ._output import show_table as show_table
