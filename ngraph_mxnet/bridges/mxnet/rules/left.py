"""Operators that stay with MXNet on purpose, each with the reason that `explain` prints."""

from __future__ import annotations

import re

from ngraph_mxnet.bridges.mxnet.symbols.attrs import canonical

LEFT: dict[str, str] = {
    "Correlation": "a search over displacements, which only optical-flow nets use",
    "Custom": "it calls the user's own Python code",
}

_RANDOM = ("bernoulli|choice|exponential|gamma|gumbel|logistic|multinomial|normal|normal_n|pareto|rayleigh|uniform"
           "|uniform_n|weibull")

#: Why whole groups of operators stay, by a pattern of their names; the first pattern that matches counts.
KINDS: dict[str, str] = {
    rf"_random_(?!pdf_).*|_sample_.*|_shuffle|_npi_({_RANDOM})":
        "it draws random numbers, whose sequence must be that of MXNet's own generator",
    r"signsgd_update|(preloaded_)?multi_sgd_update": "it is for training",
    r"(?!sgd_update$).*_update": "it writes to its inputs, which are the optimizer's state",
    r"(mp_)?lamb_update_phase[12]|multi_lars|reset_arrays|_contrib_backward_.*|_npi_backward_.*|.*_backward|_contrib_hawkesll"
    r"|CTCLoss|_contrib_(MultiBoxTarget|bipartite_matching|box_encode)":
        "it is for training",
    r"_contrib_boolean_mask|_npi_(unique|bincount|delete|boolean_mask_.*)|_npx_nonzero|_contrib_getnnz":
        "the shape of its result depends on values",
    r"_contrib_calibrate_entropy": "it calibrates a model, before it runs",
    r"_contrib_quantize(_asym|d_rnn)": "int8 recurrent nets are not supported: their state has a zero point",
    r"_sg_mkldnn_selfatt_.*": "MXNet's MKLDNN backend made it of the interleaved attention operators",
    r"cast_storage|_sparse_retain|_square_sum|_contrib_(SparseEmbedding|edge_id|dgl_.*)":
        "it works on sparse arrays",
    r"_image_.*|_cv.*|_imdecode": "it prepares images, before the model",
    r"_linalg_(gelqf|potrf|potri|syevd|inverse|det|slogdet|trsm)|_npi_(cholesky|svd|eig.*|pinv.*|solve|tensorsolve|tensorinv)":
        "it factorizes matrices or solves systems, for which MXNet has LAPACK",
    r"_CachedOp.*|NGraphSubgraphOp": "it runs a graph of its own",
    r"_contrib_(fft|ifft|count_sketch)": "MXNet itself has it for GPUs only",
    r"_contrib_Deformable(Convolution|PSROIPooling)": "models have ModulatedDeformableConvolution in its place",
    r"_contrib_(Proposal|MultiProposal|PSROIPooling|RROIAlign)":
        "no model of GluonCV has it: these make and pool their regions with other operators",
    r"_contrib_allclose": "its result has rank 0, which MXNet's partitioner takes for an unknown shape",
    r"_histogram|_npi_(percentile|lcm|lcm_scalar)|col2im": "it analyses data, and is in no net that we know",
    r"_npi_insert_.*|fill_element_0index|_onehot_encode|_scatter_set_nd|_set_value"
    r"|_zeros_without_dtype|_copyto|_CrossDeviceCopy|_npi_(powerd|share_memory)|_npx_constraint_check":
        "it is for imperative code: a graph has hardly a use for it",
    r"_NoGradient|_NDArray|_Native|_CustomFunction": "MXNet makes it for Python's sake, and no model file has it",
}


def why_left(op: str) -> str | None:
    """Why the operator of this name stays with MXNet; None when no reason is on record."""
    name = canonical(op)
    return LEFT.get(name) or next((reason for names, reason in KINDS.items() if re.fullmatch(names, name)), None)
