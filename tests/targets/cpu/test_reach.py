"""No kernel touches a byte that its record does not tell; see `guarded`. REACH_CALLS=1000 tries more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "scripts"))

from fuzzing.programs import GRAPHS, kept

from ngraph_mxnet import _core
from ngraph_mxnet.targets.cpu.params import KERNELS, Kernels
from ngraph_mxnet.targets.cpu.params.layout import TO_BLOCKED
from ngraph_mxnet.targets.cpu.params.reduction import STORE_BF16
from ngraph_mxnet.targets.cpu.params.strided import STRIDED

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
CALLS = int(os.environ.get("REACH_CALLS", "12"))
"""So many for each kernel on each instruction set; twice as many mutants of each instruction."""
SECONDS = 100 + 2 * CALLS
HAS_BF16 = _core.cpu_features()["avx512bf16"]


def outcome(tmp_path: Path, call: str) -> subprocess.CompletedProcess[str]:
    """How a process ends that calls `guarded`; `stderr` also has what was called last."""
    journal = tmp_path / "journal"
    text = f"""
import sys; sys.path[:0] = {[str(Path(__file__).parent), str(SCRIPTS)]!r}
import guarded
from fuzzing.programs import HELD
guarded.{call.replace("PATH", repr(str(journal)))}"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=SECONDS, check=False)
    done.stderr += journal.read_text() if journal.exists() else ""
    return done


def of_records(names: Counter[str]) -> Counter[Kernels]:
    found: Counter[Kernels] = Counter()
    for name, number in names.items():
        found[KERNELS[name]] += number
    return found


@pytest.mark.timeout(SECONDS)
def test_no_kernel_touches_more_than_its_record_tells(tmp_path: Path) -> None:
    done = outcome(tmp_path, f"main(PATH, {CALLS}, {CALLS})")
    assert done.returncode == 0, done.stderr
    made = of_records(Counter(json.loads(done.stdout)))
    assert [name for name, record in KERNELS.items() if made[record] < CALLS
            and (HAS_BF16 or not record.needs)] == []


@pytest.mark.parametrize("kernel", ["attention", "lrn", "gather_4", "winograd_output_2", "lstm_cell", "add"])
def test_a_reach_that_is_too_small_is_found(tmp_path: Path, kernel: str) -> None:
    for less, failed in ((0, False), (8, True)):
        done = outcome(tmp_path, f"main(PATH, 1, {max(CALLS, 20)}, {kernel!r}, {less})")
        assert (done.returncode < 0) == failed, done.stderr
        assert f"ng_{kernel}__" in done.stderr


@pytest.mark.timeout(SECONDS)
def test_what_the_validator_takes_stays_in_its_memory(tmp_path: Path) -> None:
    """Mutants of programs that together hold every record; of elementwise ops, which share what they tell, some."""
    paths = [tmp_path / make.__name__ for make in GRAPHS]
    for path, make in zip(paths, GRAPHS, strict=True):
        path.write_bytes(kept(make))
    done = outcome(tmp_path, f"try_mutants(PATH, {list(map(str, paths))!r}, HELD, {CALLS}, {2 * CALLS})")
    assert done.returncode == 0, done.stderr
    ran = of_records(Counter(json.loads(done.stdout)))
    rare = [record for record in KERNELS.values() if (not HAS_BF16 and record.needs) or "amx-tile" in record.needs]
    if not HAS_BF16:
        rare += [TO_BLOCKED["_f32_bf16"], *(
            records[end] for records in STORE_BF16.values() for end in records if "bf16" in end)]
    assert [name for name, record in KERNELS.items() if not ran[record] and record not in rare and name not in STRIDED
            ] == []
