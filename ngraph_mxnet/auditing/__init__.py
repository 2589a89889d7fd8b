"""NGRAPH_AUDIT: records of what compiled graphs read and give, comparison of two runs, and bounds that stop one."""
