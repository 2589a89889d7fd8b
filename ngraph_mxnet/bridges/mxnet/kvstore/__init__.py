"""MXNet's kvstore `dist_sync_ngraph`: data-parallel training over MPI."""
