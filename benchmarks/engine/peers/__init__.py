"""One module a method: each takes an `Ensemble` when it is made and a tolerance when it is run."""
