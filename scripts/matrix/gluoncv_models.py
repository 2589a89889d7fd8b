"""GluonCV's models, all that its `model_zoo` names."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from matrix.model import Inputs, Model, NotOffline, noise

#: By a part of the name of the module that defines a model.
_GENRES = {
    "action_recognition": "action recognition",
    "rcnn": "detection", "ssd": "detection", "yolo": "detection", "center_net": "detection",
    "fcn": "segmentation", "pspnet": "segmentation", "deeplabv3": "segmentation", "icnet": "segmentation",
    "fastscnn": "segmentation", "danet": "segmentation",
    "simple_pose": "pose estimation", "alpha_pose": "pose estimation",
    "siamrpn": "tracking", "monodepthv2": "depth",
}

_CLASSES = ["cat", "dog", "bird"]
#: Regions that the heads of R-CNNs look at.
PROPOSALS = 60


def _models() -> dict[str, Any]:
    from gluoncv.model_zoo import model_zoo

    return dict(model_zoo._models)


def genres() -> dict[str, str]:
    """The genre of each model."""
    return {name: _genre(name, maker) for name, maker in sorted(_models().items())}


def _genre(name: str, maker: Any) -> str:
    if name.startswith("hrnet") and name.endswith("_s"):
        return "segmentation"
    if name.startswith("darknet"):
        return "image classification"
    module = maker.__module__
    return next((genre for part, genre in _GENRES.items() if part in module), "image classification")


def build(name: str) -> Model:
    """Raises: NotOffline."""
    maker = _models()[name]
    genre = _genre(name, maker)
    if name.endswith("_int8"):
        raise NotOffline("its int8 weights exist as a download only")
    if name.startswith("custom_"):
        raise NotOffline("not a model but a maker of models")
    _refuse_downloads()
    _name_types()
    _let_contexts_be()
    arguments: dict[str, Any] = {"pretrained": False}
    takes = inspect.signature(maker).parameters
    if "pretrained_base" in takes or any(p.kind is p.VAR_KEYWORD for p in takes.values()):
        arguments["pretrained_base"] = False
    if "classes" in takes and takes["classes"].default is inspect.Parameter.empty:
        arguments["classes"] = _CLASSES
    try:
        net = maker(**arguments)
    except (TypeError, Warning) as error:  # Darknet raises a Warning
        if "pretrained_base" not in str(error) and not isinstance(error, Warning):
            raise
        del arguments["pretrained_base"]
        net = maker(**arguments)
    if "rcnn" in name:
        _limit_proposals(net)
        _define_roi_align()
    return Model(net, _inputs(name, genre), "boxes" if genre == "detection" else "values")


def _limit_proposals(net: Any) -> None:
    """An R-CNN's heads run for each of up to 1,000 regions, which takes minutes a model."""
    net._rpn_test_post_nms = net.rpn._test_post_nms = min(net._rpn_test_post_nms, PROPOSALS)
    if hasattr(net, "_rcnn_max_dets"):
        net._rcnn_max_dets = min(net._rcnn_max_dets, PROPOSALS)


def _define_roi_align() -> None:
    """Zeros for regions of image -1, of which a pyramid gives each level those that belong to others.

    There MXNet's CPU code leaves what was in the memory, and writes one 0 into the result of the first region, so that
    R-CNNs with a pyramid give other boxes from call to call.
    """
    import mxnet as mx

    align = mx.sym.contrib.ROIAlign
    if getattr(align, "defined", False):
        return

    def defined(data: Any, rois: Any, *rest: Any, **options: Any) -> Any:
        image, box = (mx.sym.slice_axis(rois, axis=1, begin=begin, end=end) for begin, end in ((0, 1), (1, 5)))
        found = align(data, mx.sym.concat(mx.sym.relu(image), box, dim=1), *rest, **options)
        return mx.sym.where(mx.sym.squeeze(image, axis=1) >= 0, found, mx.sym.zeros_like(found))

    defined.defined = True  # type: ignore[attr-defined]
    mx.sym.contrib.ROIAlign = defined


def _let_contexts_be() -> None:
    """Some models move their weights to a context before they have any, which MXNet refuses."""
    import mxnet as mx

    mx.gluon.ParameterDict.reset_ctx = lambda self, ctx: None


def _name_types() -> None:
    """R-CNNs and HRNets use names of Python's types that NumPy 1.24 took away."""
    vars(np).update(float=float, int=int)


def _refuse_downloads() -> None:
    from gluoncv.model_zoo import model_store

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise NotOffline("it loads pretrained weights whatever it is asked")

    model_store.download = refuse


def _inputs(name: str, genre: str) -> Inputs:
    if genre == "tracking":
        return {"template": noise(1, 3, 127, 127), "search": noise(1, 3, 287, 287, seed=1)}
    return {"data": noise(1, *_shape(name, genre))}


def _shape(name: str, genre: str) -> tuple[int, ...]:
    """(channels, height, width), for clips (channels, frames, height, width): what the network is made for."""
    if genre == "action recognition":
        return _clip(name)
    if genre == "detection":
        if "rcnn" in name:
            return 3, 384, 512  # they take any size; 600 x 800 is usual
        size = 300 if "ssd_300" in name else 512 if "ssd_512" in name or "center_net" in name else 416
        return 3, size, size
    if genre == "segmentation":
        return (3, 1024, 1024) if "fastscnn" in name else (3, 480, 480)
    if genre == "pose estimation":
        return (3, 320, 256) if "alpha" in name else (3, 256, 192)
    if genre == "depth":
        return (6 if "posenet" in name else 3), 192, 640
    if name.startswith("cifar"):
        return 3, 32, 32
    size = 299 if "inceptionv3" in name or name.startswith("xception") else 331 if "nasnet" in name else 224
    return 3, size, size


def _clip(name: str) -> tuple[int, ...]:
    if name.startswith(("c3d", "r2plus1d")):
        return 3, 16, 112, 112
    if name.startswith("p3d"):
        return 3, 16, 160, 160
    if name.startswith("slowfast"):
        return 3, {"4x16": 36, "8x8_": 40, "16x8": 80}[name.split("_", 1)[1][:4]], 224, 224
    if name.startswith("i3d"):
        return 3, 32, 224, 224
    size = 299 if "inceptionv3" in name else 224
    return 3, size, size
