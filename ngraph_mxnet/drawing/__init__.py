"""Pictures of graphs, as SVG."""
