"""The device files: every number has a unit, a kind and a source, and what is published comes out of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from nnp_tables import device_tables, instruction_table, lowering_table, support_table

from ngraph_mxnet.base.errors import ConfigError, NGraphError
from ngraph_mxnet.targets.nnp.device import KINDS, devices, load_device, owner

ALL = [f"{product}:{mode}" for product, modes in devices().items() for mode in modes]


@pytest.mark.parametrize("name", ALL)
def test_every_number_says_where_it_comes_from(name: str):
    device = load_device(name)
    assert device.name == name
    for path, number in device.numbers.items():
        assert number.unit and number.kind in KINDS and len(number.source) > 3, path
        assert number.value >= 0, path


@pytest.mark.parametrize(("name", "element", "tera"), [
    ("nnp-i-1100", "i8", 50), ("NNP-I-1100:10w", "i8", 48), ("nnp-i-1300", "i8", 85), ("nnp-i-1300:50W", "i8", 92),
    ("nnp-t-1300", "bf16", 85.6064), ("nnp-t-1400", "bf16", 108.1344)])
def test_published_peaks(name: str, element: str, tera: float):
    assert 2 * load_device(name).peak(element) == pytest.approx(tera * 1e12)


def test_published_totals():
    spring_hill, spring_crest = load_device("nnp-i-1300:50W"), load_device("nnp-t-1400")
    for level, total in (("sram", 6.8e12), ("tcm", 68e12)):
        assert spring_hill.memories[level].bandwidth * spring_hill.engines == pytest.approx(total, rel=1e-3)
    assert spring_hill.memories["sram"].size * spring_hill.engines == 48 << 20
    assert spring_crest.memories["sram"].size * spring_crest.engines == 60 << 20
    assert load_device("nnp-t-1300").memories["sram"].size * 22 == 55 << 20
    assert spring_crest.grids["bf16"].macs * spring_crest.engines * 2 == 98304


def test_ratios_of_a_slide_are_not_called_published():
    """680 GB/s, 6.8 and 68 TB/s are 10, 100 and 1,000 times the DRAM's rate, rounded."""
    spring_hill = load_device("nnp-i-1300:50W")
    dram, engines = spring_hill.memories["dram"].bandwidth, spring_hill.engines
    for level, count, ratio in (("llc", 1, 10), ("sram", engines, 100), ("tcm", engines, 1000)):
        assert spring_hill.memories[level].bandwidth * count == pytest.approx(ratio * dram, rel=0.02)
        assert spring_hill.numbers[f"memories.{level}.bandwidth"].kind == "derived"


def test_names_of_memories_and_units():
    device = load_device("nnp-i-1100")
    assert device.local == ("sram", "tcm")
    assert {"host", "dram", "llc", "ice0.sram", "ice11.tcm"} < device.memory_names.keys()
    assert len(device.memory_names) == 3 + 12 * 2
    assert device.unit_kind("ice11.grid") == "grid" and device.unit_kind("host.dma1") == "dma"
    assert owner("ice3.sram") == "ice3" and owner("dram") == ""
    with pytest.raises(NGraphError, match=r"no memory 'ice12.sram'.*ice0.sram"):
        device.memory("ice12.sram")
    with pytest.raises(NGraphError, match=r"no unit 'tpc0.grid'.*ice0.grid"):
        device.unit_kind("tpc0.grid")
    assert "llc" not in load_device("nnp-t-1400").memory_names


def test_a_number_can_be_given():
    device = load_device("nnp-i-1300", {"memories.llc.bandwidth": 1e12, "clock": 1e9})
    assert device.memories["llc"].bandwidth == 1e12
    assert device.memories["sram"].bandwidth == pytest.approx(605.5e9)  # follows the clock
    with pytest.raises(ConfigError, match="no number 'llc'"):
        load_device("nnp-i-1300", {"llc": 1.0})


@pytest.mark.parametrize(("name", "says"), [("nnp-x", "known: nnp-i-1100"), ("nnp-i-1300:9W", "it has 37.5W, 50W, 10W"),
                                            ("spring-hill", "no device")])
def test_unknown_names(name: str, says: str):
    with pytest.raises(ConfigError, match=says):
        load_device(name)


def test_the_tables_of_the_documentation():
    docs = Path(__file__).resolve().parents[3] / "docs"
    for table in (device_tables(), lowering_table(), support_table()):
        assert table in (docs / "nnp-devices.md").read_text(), "run scripts/update_docs.py"
    assert instruction_table() in (docs / "nnp.md").read_text(), "run scripts/update_docs.py"
