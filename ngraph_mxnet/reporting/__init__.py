"""A model's report: one page that shows the graph, where it runs, what passes changed, kernels, memory and time."""
