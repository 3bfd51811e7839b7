"""Reports: pure queries over pinned versions that passed the gate, one module per report."""
