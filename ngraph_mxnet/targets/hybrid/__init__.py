"""The backend that places a graph's nodes on two others, so that the predicted time is least: see docs/hybrid.md."""
