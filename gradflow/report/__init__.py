"""Pages that need nothing but themselves: the report of a run, and the ledger of all."""

from gradflow.report.ledger import ledger_page as ledger_page
from gradflow.report.run import run_page as run_page
