"""The rating follows time, memory, leaks and errors."""

import pytest

from seqclf.bench.benchmark import Figures, StructureChanges, rate_dynamic, speed_text
from seqclf.bench.machine import MemoryGrowth
from seqclf.bench.timing import TrainingTiming

STEADY = MemoryGrowth(300, 0.0, -1.0, 1.0, leaks=False)
LEAKING = MemoryGrowth(300, 9.0, 8.0, 10.0, leaks=True)
SOUND = StructureChanges(144, [])
FAILED = StructureChanges(144, ["gru: failed"])


def make_figures(time_ratio, memory_mb):
    timing = TrainingTiming(
        first_step_s=0.1,
        compiled_graphs=0,
        tokens_per_s=1e4,
        step_ms=time_ratio,
        step_ms_mean=time_ratio,
        step_ms_p95=time_ratio,
        padding_efficiency=0.9,
        graph_ms=0.1,
        loss=0.5,
        recall=0.5,
        time_ratio=time_ratio,
        memory_mb=memory_mb,
    )
    return Figures(1000, timing)


@pytest.mark.parametrize(
    ("time_ratio", "memory_ratio", "growth", "structure", "word"),
    [
        (0.2, 0.8, STEADY, SOUND, "good"),
        (1.15, 1.0, STEADY, SOUND, "good"),
        (1.2, 1.0, STEADY, SOUND, "acceptable"),
        (1.3, 1.0, STEADY, SOUND, "bad"),
        (0.2, 1.2, STEADY, SOUND, "bad"),
        (0.2, 0.8, LEAKING, SOUND, "bad"),
        (0.2, 0.8, STEADY, FAILED, "bad"),
    ],
)
def test_rating_follows_time_memory_leaks_and_errors(time_ratio, memory_ratio, growth, structure, word):
    figures = {"dynamic": make_figures(time_ratio, 100 * memory_ratio), "static": make_figures(1.0, 100.0)}
    rating = rate_dynamic(figures, growth, structure)
    assert rating.word == word and f"{speed_text(time_ratio)} as static" in rating.reason


def test_there_is_no_rating_unless_both_modes_ran():
    assert rate_dynamic({"static": make_figures(1.0, 100.0)}, STEADY, SOUND).word == "none"
