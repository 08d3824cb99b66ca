from .evaluation.evaluator import evaluate as evaluate
from .evaluation.estimates import Estimate as Estimate, Evaluation as Evaluation
from .log import Log as Log, LogBatch as LogBatch, LogSchema as LogSchema, from_arrays as from_arrays
