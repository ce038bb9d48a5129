# The public names and where they come from: read by type checkers, and by __init__.py when it is imported.
from .adapters.load import load_model as load_model
from .adapters.load import read_texts as read_texts
from .adapters.modules import module_heads as module_heads
from .adapters.transformers import AuditError as AuditError
from .adapters.transformers import watching as watching
from .figures import plot as plot
from .findings import Rule as Rule
from .findings import summary as summary
from .heads import Heads as Heads
from .kinds import FINDINGS as FINDINGS
from .model import audit_heads as audit_heads
from .model import audit_model as audit_model
from .readouts import read_out as read_out
from .replace import linearize as linearize
from .replace import replacement_curves as replacement_curves
from .statistics import head_statistics as head_statistics
