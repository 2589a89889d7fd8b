"""docs/genres.md has the figures of docs/models.md, which scripts/model_matrix.py writes."""

from __future__ import annotations

import re

import pytest
from blocks import ROOT

GENRES = (ROOT / "docs" / "genres.md").read_text(encoding="utf-8")
MODELS = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
NAMES = {
    "image classification, Gluon's zoo": "Gluon zoo", "image classification, GluonCV": "image classification",
    "action recognition (video)": "action recognition", "language models": "language model",
    "transformers (text, translation)": "transformer", "time series": "forecasting",
}
"""Genres that the matrix calls otherwise."""


def rows(text: str, columns: int) -> list[list[str]]:
    """The cells of all tables with so many columns, headings left out."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return [cells for cells in lines if len(cells) == columns and cells[1][:1].isdigit()]


SUMMARY = {cells[0]: cells for cells in rows(MODELS.partition("## Summary")[2].partition("\n## ")[0], 12)}
TABLE = rows(GENRES, 6)


def test_every_genre_of_the_matrix_but_tracking_has_a_row() -> None:
    assert {NAMES.get(cells[0], cells[0]) for cells in TABLE} == SUMMARY.keys() - {"**all**", "tracking"}


@pytest.mark.parametrize("cells", TABLE, ids=lambda cells: cells[0])
def test_the_table_is_that_of_the_matrix(cells: list[str]) -> None:
    """Models, one region, right, slower; the median ratio on one thread."""
    full = SUMMARY[NAMES.get(cells[0], cells[0])]
    assert cells[1:5] == [full[1], full[3], full[6], full[7]]
    assert re.findall(r"\d\.\d+", cells[5]) == [full[11]]


@pytest.mark.parametrize(("model", "told"), [
    ("yolo3_darknet53_coco", "YOLOv3 165 ms, 0.40"), ("ssd_512_resnet50_v1_voc", "163 ms, 0.71"),
    ("fcn_resnet50_voc", "826 ms, 0.50"), ("hrnet_w18_small_v1_s", "49.3 ms, 0.60"),
    ("fastscnn_citys", "79.8 ms, 0.38"), ("transformer_en_de_512 (encoder)", "40.3 ms, 0.77"),
    ("standard_lstm_lm_650", "20.1 ms, 0.34"), ("standard_lstm_lm_200", "2.6 ms, 0.43"),
    ("monodepth2_resnet18_kitti_mono_640x192", "monodepth2 60.8 ms, 0.56"),
    ("DeepAR (prediction)", "prediction 9.4 ms, 0.22"), ("NBEATS (prediction)", "4.9 ms, 0.71"),
    ("MQCNN (prediction)", "0.3 ms, 0.36"), ("Transformer (prediction)", "25.9 ms, 0.61"),
    ("mask_rcnn_fpn_resnet50_v1b_coco", "0.44"),
])  # fmt: skip
def test_a_model_is_as_quick_as_told(model: str, told: str) -> None:
    (cells,) = {tuple(cells) for cells in rows(MODELS, 14) if cells[0] == model}
    assert told in GENRES.replace("\n ", "")
    *ms, ratio = re.findall(r"\d[\d,]*\.?\d*", told.split("YOLOv3")[-1].split("monodepth2")[-1])
    assert ratio == cells[11]
    for time in ms:
        digits = len(time.partition(".")[2])
        assert f"{float(cells[10].split(' / ')[0]):.{digits}f}" == time.replace(",", "")
