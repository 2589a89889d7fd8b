"""How MXNet's binds, executors and Gluon's calls reach the compiler: activation, what is put around MXNet's
functions, and what happens when something fails.
"""
