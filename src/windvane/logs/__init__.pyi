from .log import ArrayLog as ArrayLog, Log as Log, LogBatch as LogBatch, LogSchema as LogSchema
from .log import from_arrays as from_arrays
from .reading import FileLog as FileLog, read as read
