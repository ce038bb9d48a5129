"""Audit of real transformers: which heads read only the moments of their prompt, and which select tokens.

Needs the extra ``models`` for models of transformers; :class:`Heads` and :func:`audit_heads` take bare tensors.
"""

from largeprompt.audit.adapters.load import load_model, read_texts
from largeprompt.audit.adapters.transformers import AuditError, module_heads, watching
from largeprompt.audit.findings import FINDINGS, Rule, summary
from largeprompt.audit.heads import Heads
from largeprompt.audit.model import audit_heads, audit_model
from largeprompt.audit.readouts import read_out
from largeprompt.audit.replace import linearize, replacement_curves
from largeprompt.audit.statistics import head_statistics

__all__ = [
    "FINDINGS",
    "AuditError",
    "Heads",
    "Rule",
    "audit_heads",
    "audit_model",
    "head_statistics",
    "linearize",
    "load_model",
    "module_heads",
    "read_out",
    "read_texts",
    "replacement_curves",
    "summary",
    "watching",
]
