from .drift.diagnosis import DriftDiagnosis as DriftDiagnosis, diagnose_drift as diagnose_drift
from .evaluation.estimates import Estimate as Estimate, Evaluation as Evaluation
from .evaluation.evaluator import evaluate as evaluate
from .file_log import FileLog as FileLog
from .forgetting_value import value_forgetting as value_forgetting
from .log import Log as Log, LogBatch as LogBatch, LogSchema as LogSchema
from .array_log import ArrayLog as ArrayLog, from_arrays as from_arrays
from .row_problems import ProblemCount as ProblemCount, Problems as Problems, RowProblem as RowProblem
from .reading import read as read
from .soundness.checking import LogCheck as LogCheck, check as check
from .soundness.verdicts import ArmCheck as ArmCheck, CheckLine as CheckLine
