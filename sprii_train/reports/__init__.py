"""Results beside the paper's: tables, figures, verdicts, HTML."""
