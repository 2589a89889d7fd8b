"""The simulated NNP: what instructions compute, and how long and how much energy they take."""
