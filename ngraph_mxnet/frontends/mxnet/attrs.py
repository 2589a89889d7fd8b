"""MXNet's attributes are text; here they get types, and each read is noted.

A rule reads what it understands. An attribute that is set and that no one read would silently change
nothing: `unread` finds it, and the importer turns the node down for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from ngraph_mxnet.base.errors import ModelError, UnsupportedError
from ngraph_mxnet.ir import Builder, Value
from ngraph_mxnet.ir.types import ElementType, element_type, f16, f32

Dims = tuple[int, ...]
Floats = tuple[float, ...]
OptionalDims = tuple[int | None, ...]  # named here: in the class `int` is a method
Pairs = tuple[tuple[int, int], ...]
T = TypeVar("T")

REQUIRED: Any = object()

# Attributes that a user or a training loop hangs on any node; none changes a result of inference.
_FOREIGN = frozenset({"ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage", "weight_lr_mult"})

_BOOLS = {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}
_INT = re.compile(r"[+-]?\d+L?\Z")  # Python 2 wrote longs as 3L


class Attrs:
    """The attributes of one node.

    Each reader takes a name and a default, REQUIRED unless given. All raise ModelError when the attribute
    is missing without a default or does not parse.
    """

    def __init__(self, raw: Mapping[str, str], where: str) -> None:
        self._raw = {k: v for k, v in raw.items() if not k.startswith("__") and k not in _FOREIGN}
        self._read: set[str] = set()
        self._where = where

    def unread(self) -> dict[str, str]:
        """Return the attributes that are set and were never read."""
        return {key: value for key, value in self._raw.items() if key not in self._read}

    def ignore(self, *names: str) -> None:
        """Mark attributes that do not change what inference computes."""
        self._read.update(names)

    def has(self, name: str) -> bool:
        """True if the attribute is set to something other than None."""
        return self._raw.get(name, "None") != "None"

    def is_none(self, name: str) -> bool:
        """True if the attribute is written as None, where None is not its default."""
        self._read.add(name)
        return self._raw.get(name) == "None"

    def int(self, name: str, default: T = REQUIRED) -> int | T:
        """`3`, or `3L` of old files."""
        return self._get(name, default, _to_int, "an integer")

    def float(self, name: str, default: T = REQUIRED) -> float | T:
        return self._get(name, default, float, "a number")

    def bool(self, name: str, default: T = REQUIRED) -> bool | T:
        """`True`, `true`, `1` and their opposites."""
        return self._get(name, default, _BOOLS.__getitem__, "True or False")

    def ints(self, name: str, default: T = REQUIRED) -> Dims | T:
        """`(3, 3)`, `[3, 3]`, `()`, or a bare `3`."""
        return self._get(name, default, lambda t: tuple(map(_to_int, _split(t))), "a tuple of integers")

    def floats(self, name: str, default: T = REQUIRED) -> Floats | T:
        """`(0.5, 1)` or a bare `0.5`."""
        return self._get(name, default, lambda t: tuple(map(float, _split(t))), "a tuple of numbers")

    def optional_ints(self, name: str, default: T = REQUIRED) -> OptionalDims | T:
        """A tuple in which `None` may stand for an integer."""
        return self._get(name, default, _to_optional_ints, "a tuple of integers and None")

    def pairs(self, name: str, default: T = REQUIRED) -> Pairs | T:
        """`((1, 2), (0, 0))`: a tuple of pairs of integers."""
        return self._get(name, default, _to_pairs, "a tuple of pairs of integers")

    def text(self, name: str, default: T = REQUIRED) -> str | T:
        """The text itself."""
        return self._get(name, default, str, "text")

    def choice(self, name: str, default: T, supported: Collection[str]) -> str | T:
        """One of `supported`.

        Raises:
            UnsupportedError: another word.
        """
        value = self._get(name, default, str, "a word")
        if value is not default and value not in supported:
            raise UnsupportedError(f"{name}={value} is not supported; supported: {', '.join(supported)}")
        return value

    def element(self, name: str, default: T = REQUIRED) -> ElementType | T:
        """A dtype by NumPy's name."""
        return self._get(name, default, element_type, "a dtype")

    def _get(self, name: str, default: T, convert: Callable[[str], Any], expects: str) -> Any:
        self._read.add(name)
        text = self._raw.get(name, "None")
        if text == "None":  # how MXNet writes an unset optional
            if default is REQUIRED:
                raise ModelError(f"{self._where}: attribute {name} is missing, expected {expects}")
            return default
        try:
            return convert(text.strip())
        except (ValueError, KeyError, TypeError):
            raise ModelError(f"{self._where}: attribute {name} is {text!r:.80}, expected {expects}") from None


def _to_int(text: str) -> int:
    if not _INT.match(text):
        raise ValueError(text)
    return int(text.rstrip("L"))


def _to_pairs(text: str) -> tuple[tuple[int, int], ...]:
    numbers = [_to_int(part) for part in re.sub(r"[()\[\] ]", "", text).split(",") if part]
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _to_optional_ints(text: str) -> tuple[int | None, ...]:
    return tuple(None if part == "None" else _to_int(part) for part in _split(text))


def _split(text: str) -> list[str]:
    if text[:1] in "([" and text[-1:] in ")]":
        text = text[1:-1]
    return [part.strip() for part in text.split(",") if part.strip()]


_ALIASES = {
    "Activation": "_npx_activation",
    "BatchNorm": "_npx_batch_norm",
    "BlockGrad": "stop_gradient",
    "CTCLoss": "_contrib_CTCLoss _contrib_ctc_loss ctc_loss",
    "Cast": "_npi_cast _npx_cast cast",
    "Concat": "concat",
    "Convolution": "_npx_convolution",
    "Custom": "_npi_Custom",
    "Deconvolution": "_npx_deconvolution",
    "Dropout": "_npx_dropout",
    "Embedding": "_npx_embedding",
    "Flatten": "_npx_batch_flatten flatten",
    "FullyConnected": "_npx_fully_connected",
    "LayerNorm": "_npx_layer_norm",
    "LeakyReLU": "_npx_leaky_relu",
    "Pad": "pad",
    "Pooling": "_npx_pooling",
    "RNN": "_npx_rnn",
    "ROIPooling": "_npx_roi_pooling",
    "Reshape": "reshape",
    "SequenceMask": "_npx_sequence_mask",
    "SliceChannel": "split",
    "SoftmaxOutput": "Softmax",
    "SwapAxis": "_npi_swapaxes swapaxes",
    "_contrib_MultiBoxDetection": "_npx_multibox_detection",
    "_contrib_MultiBoxPrior": "_npx_multibox_prior",
    "_contrib_MultiBoxTarget": "_npx_multibox_target",
    "_contrib_arange_like": "_npx_arange_like",
    "_contrib_boolean_mask": "_npi_boolean_mask",
    "_contrib_box_nms": "_contrib_box_non_maximum_suppression",
    "_copy": "identity",
    "_copyto": "_npi_copyto",
    "_cvimdecode": "_npi_cvimdecode",
    "_cvimread": "_npi_cvimread",
    "_cvimresize": "_npi_cvimresize",
    "_div_scalar": "_DivScalar",
    "_equal": "_Equal",
    "_equal_scalar": "_EqualScalar",
    "_full": "_npi_full",
    "_greater": "_Greater",
    "_greater_equal": "_Greater_Equal",
    "_greater_equal_scalar": "_GreaterEqualScalar",
    "_greater_scalar": "_GreaterScalar",
    "_histogram": "_npi_histogram",
    "_hypot": "_Hypot",
    "_hypot_scalar": "_HypotScalar _npi_hypot_scalar",
    "_image_adjust_lighting": "_npx__image_adjust_lighting",
    "_image_crop": "_npx__image_crop",
    "_image_flip_left_right": "_npx__image_flip_left_right",
    "_image_flip_top_bottom": "_npx__image_flip_top_bottom",
    "_image_normalize": "_npx__image_normalize",
    "_image_random_brightness": "_npx__image_random_brightness",
    "_image_random_color_jitter": "_npx__image_random_color_jitter",
    "_image_random_contrast": "_npx__image_random_contrast",
    "_image_random_flip_left_right": "_npx__image_random_flip_left_right",
    "_image_random_flip_top_bottom": "_npx__image_random_flip_top_bottom",
    "_image_random_hue": "_npx__image_random_hue",
    "_image_random_lighting": "_npx__image_random_lighting",
    "_image_random_saturation": "_npx__image_random_saturation",
    "_image_resize": "_npx__image_resize",
    "_image_to_tensor": "_npx__image_to_tensor",
    "_lesser": "_Lesser",
    "_lesser_equal": "_Lesser_Equal",
    "_lesser_equal_scalar": "_LesserEqualScalar",
    "_lesser_scalar": "_LesserScalar",
    "_linalg_det": "_npi_det linalg_det",
    "_linalg_extractdiag": "linalg_extractdiag",
    "_linalg_extracttrian": "linalg_extracttrian",
    "_linalg_gelqf": "linalg_gelqf",
    "_linalg_gemm": "linalg_gemm",
    "_linalg_gemm2": "linalg_gemm2",
    "_linalg_inverse": "_npi_inv linalg_inverse",
    "_linalg_makediag": "linalg_makediag",
    "_linalg_maketrian": "linalg_maketrian",
    "_linalg_potrf": "linalg_potrf",
    "_linalg_potri": "linalg_potri",
    "_linalg_slogdet": "_npi_slogdet linalg_slogdet",
    "_linalg_sumlogdiag": "linalg_sumlogdiag",
    "_linalg_syrk": "linalg_syrk",
    "_linalg_trmm": "linalg_trmm",
    "_linalg_trsm": "linalg_trsm",
    "_linspace": "_npi_linspace",
    "_logical_and": "_Logical_And",
    "_logical_and_scalar": "_LogicalAndScalar",
    "_logical_or": "_Logical_Or",
    "_logical_or_scalar": "_LogicalOrScalar",
    "_logical_xor": "_Logical_Xor",
    "_logical_xor_scalar": "_LogicalXorScalar",
    "_maximum": "_Maximum",
    "_maximum_scalar": "_MaximumScalar _npi_maximum_scalar",
    "_minimum": "_Minimum",
    "_minimum_scalar": "_MinimumScalar _npi_minimum_scalar",
    "_minus_scalar": "_MinusScalar",
    "_mod": "_Mod",
    "_mod_scalar": "_ModScalar",
    "_mul_scalar": "_MulScalar",
    "_not_equal": "_Not_Equal",
    "_not_equal_scalar": "_NotEqualScalar",
    "_np_any": "_np_sometrue",
    "_np_cumsum": "cumsum",
    "_np_max": "_np_amax",
    "_np_min": "_np_amin",
    "_np_prod": "_np_product",
    "_npi_absolute": "_npi_abs",
    "_npx_nonzero": "_npi_nonzero",
    "_npx_reshape": "_npi_reshape",
    "_plus_scalar": "_PlusScalar",
    "_power": "_Power",
    "_power_scalar": "_PowerScalar",
    "_random_exponential": "random_exponential",
    "_random_gamma": "random_gamma",
    "_random_generalized_negative_binomial": "random_generalized_negative_binomial",
    "_random_negative_binomial": "random_negative_binomial",
    "_random_normal": "normal random_normal",
    "_random_pdf_dirichlet": "random_pdf_dirichlet",
    "_random_pdf_exponential": "random_pdf_exponential",
    "_random_pdf_gamma": "random_pdf_gamma",
    "_random_pdf_generalized_negative_binomial": "random_pdf_generalized_negative_binomial",
    "_random_pdf_negative_binomial": "random_pdf_negative_binomial",
    "_random_pdf_normal": "random_pdf_normal",
    "_random_pdf_poisson": "random_pdf_poisson",
    "_random_pdf_uniform": "random_pdf_uniform",
    "_random_poisson": "random_poisson",
    "_random_randint": "_npi_random_randint random_randint",
    "_random_uniform": "random_uniform uniform",
    "_ravel_multi_index": "ravel_multi_index",
    "_rdiv_scalar": "_RDivScalar",
    "_rminus_scalar": "_RMinusScalar",
    "_rmod_scalar": "_RModScalar",
    "_rnn_param_concat": "_npi_rnn_param_concat",
    "_rpower_scalar": "_RPowerScalar",
    "_sample_exponential": "sample_exponential",
    "_sample_gamma": "sample_gamma",
    "_sample_generalized_negative_binomial": "sample_generalized_negative_binomial",
    "_sample_multinomial": "sample_multinomial",
    "_sample_negative_binomial": "sample_negative_binomial",
    "_sample_normal": "sample_normal",
    "_sample_poisson": "sample_poisson",
    "_sample_uniform": "sample_uniform",
    "_scatter_set_nd": "_npi_scatter_set_nd",
    "_shuffle": "_npi_shuffle shuffle",
    "_slice_assign": "_crop_assign _npi_slice_assign",
    "_slice_assign_scalar": "_crop_assign_scalar _npi_slice_assign_scalar",
    "_split_v2": "_npi_split",
    "_unravel_index": "unravel_index",
    "add_n": "ElementWiseSum",
    "argsort": "_npi_argsort",
    "batch_dot": "_npx_batch_dot",
    "broadcast_add": "broadcast_plus",
    "broadcast_axis": "broadcast_axes",
    "broadcast_maximum": "_npi_maximum",
    "broadcast_minimum": "_npi_minimum",
    "broadcast_sub": "broadcast_minus",
    "clip": "_npi_clip",
    "elemwise_add": "_Plus _add _plus",
    "elemwise_div": "_Div _div",
    "elemwise_mul": "_Mul _mul",
    "elemwise_sub": "_Minus _minus _sub",
    "erf": "_npx_erf",
    "erfinv": "_npx_erfinv",
    "expand_dims": "_npi_expand_dims",
    "gamma": "_npx_gamma",
    "gammaln": "_npx_gammaln",
    "gather_nd": "_npi_gather_nd _npx_gather_nd",
    "log_softmax": "_npx_log_softmax",
    "max": "max_axis",
    "min": "min_axis",
    "one_hot": "_npx_one_hot",
    "pick": "_npx_pick choose_element_0index",
    "repeat": "_np_repeat",
    "reshape_like": "_npx_reshape_like",
    "reverse": "flip",
    "shape_array": "_npx_shape_array",
    "slice": "_npi_slice _npx_slice crop",
    "smooth_l1": "_npx_smooth_l1",
    "softmax": "_npx_softmax",
    "sort": "_npi_sort",
    "sum": "sum_axis",
    "take": "_npi_take",
    "tile": "_npi_tile",
    "topk": "_npx_topk",
}
"""The other names of an operator."""

_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases.split()}
_SPARSE = "_sparse_"
_OWN = {"_sparse_adagrad_update", "_sparse_retain"}
"""Operators of their own, whose names only begin so."""


def canonical(op: str) -> str:
    """The name under which MXNet 1.9.1 writes the operator `op`.

    >>> canonical("SoftmaxOutput"), canonical("Softmax"), canonical("_sparse_relu")
    ('SoftmaxOutput', 'SoftmaxOutput', 'relu')
    """
    if op in _CANONICAL or op in _OWN:
        return _CANONICAL.get(op, op)
    plain = op.removeprefix(_SPARSE)
    return _CANONICAL.get(plain, plain)


def aliases(op: str) -> list[str]:
    """All other names of the operator whose canonical name is `op`, but for the `_sparse_` ones."""
    return _ALIASES.get(op, "").split()


class Halves:
    """For float16 values that were rounded from a float32 value, or widened to one: that float32 value.

    Attributes:
        scalars: whether values may have rank 0, as arrays of MXNet's NumPy interface may. A partitioned symbol's may
            not, because MXNet takes that for an unknown shape.
    """

    def __init__(self, *, scalars: bool = False) -> None:
        self.scalars = scalars
        self._wide: dict[Value, Value] = {}

    @property
    def used(self) -> bool:
        """True if there are any such values. Then the graph may have conversions that no node reads."""
        return bool(self._wide)

    def mark(self) -> int:
        """The present state, for `forget`."""
        return len(self._wide)

    def forget(self, mark: int) -> None:
        """Go back to a state: what was added since is not there."""
        for value in list(self._wide)[mark:]:
            del self._wide[value]

    def has_wide(self, value: Value) -> bool:
        """True if `value` exists in float32 already."""
        return value in self._wide

    def widened(self, b: Builder, value: Value) -> Value:
        """A float16 value in float32."""
        if value not in self._wide:
            self._wide[value] = b.convert(value, element=f32)
        return self._wide[value]

    def narrowed(self, b: Builder, value: Value) -> Value:
        """A float32 value rounded to float16, as MXNet stores it."""
        narrow = b.convert(value, element=f16)
        self._wide[narrow] = value
        return narrow
