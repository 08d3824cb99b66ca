from .log import ArrayLog as ArrayLog, Log as Log, LogBatch as LogBatch, LogSchema as LogSchema
from .log import from_arrays as from_arrays
from .file_log import FileLog as FileLog
from .problems import ProblemCount as ProblemCount, Problems as Problems, RowProblem as RowProblem
from .reading import read as read
