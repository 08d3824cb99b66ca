from .drift.diagnosis import DriftDiagnosis as DriftDiagnosis, diagnose_drift as diagnose_drift
