"""Arithmetic of what is measured: additive counts first, figures from their totals."""
