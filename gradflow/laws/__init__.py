"""Closed forms and conserved quantities of training, as residuals."""
