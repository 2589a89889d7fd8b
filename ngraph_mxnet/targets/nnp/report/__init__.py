"""What the simulation found, in tables: time, energy, accuracy, serving."""
