"""The model matrix: what becomes of other people's models. See scripts/model_matrix.py."""
