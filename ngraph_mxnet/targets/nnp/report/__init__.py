"""Results of the simulation in tables: time, energy, accuracy, serving."""
