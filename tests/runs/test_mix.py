"""The mixture of a run: a trained network beside fitted wide paths."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import seqclf
from seqclf.errors import InputError
from seqclf.evaluation.choose_share import choose_share
from seqclf.runs.evaluate import split_outputs
from seqclf.runs.joint_paths import JointPaths
from seqclf.runs.mix import fit_wide, mix_wide, path_kinds, without_mixture
from seqclf.wide import sparse_head
from seqclf.wide.boosted_trees import BoostedTrees
from seqclf.wide.kernels import Kernels
from seqclf.wide.ngrams import Ngrams
from seqclf.wide.path import FittedPath
from seqclf.wide.statistics import Statistics


@pytest.fixture
def parts(tmp_path, cache, monkeypatch):
    """A dataset whose label is told by the first letter, its batches, and an untrained task."""
    monkeypatch.setenv("SEQCLF_CACHE", str(cache))
    rng = np.random.default_rng(0)
    rows = [rng.choice(list("abcd"), 4).tolist() for _ in range(200)]
    table = pa.table({"letters": rows, "label": [row[0] for row in rows]})
    pq.write_table(table, tmp_path / "rows.parquet")
    dataset = seqclf.load_data(str(tmp_path / "rows.parquet"), label="label")
    return dataset, seqclf.SequenceDataModule(dataset.splits), seqclf.SequenceTask(dataset.description())


def fix_share(monkeypatch, share):
    """Let validation choose a share of the wide paths."""

    def chosen(*arguments):
        return replace(choose_share(*arguments), share=share, scale=2.0)

    monkeypatch.setattr("seqclf.runs.mix.choose_share", chosen)


@pytest.fixture
def waves(tmp_path, cache, monkeypatch):
    """Dataset, batches and an untrained task of rising and falling numbers."""
    monkeypatch.setenv("SEQCLF_CACHE", str(cache))
    rng = np.random.default_rng(0)
    signs = rng.choice([-1, 1], 90)
    rows = [(sign * np.linspace(0, 1, rng.integers(9, 20)) + rng.normal(size=1)).tolist() for sign in signs]
    pq.write_table(pa.table({"level": rows, "label": signs.astype(str)}), tmp_path / "rows.parquet")
    dataset = seqclf.load_data(str(tmp_path / "rows.parquet"), label="label")
    return dataset, seqclf.SequenceDataModule(dataset.splits), seqclf.SequenceTask(dataset.description())


def test_wide_paths_replace_an_untrained_network(parts):
    dataset, batches, task = parts
    network = task.model
    mix = mix_wide(dataset, batches, task, fit_wide(dataset))
    assert mix.choice.share == 1 and task.hparams["wide"]["share"] == 1
    assert (mix.logits["wide"].argmax(axis=1) == dataset.splits["validation"].labels).mean() > 0.9
    assert without_mixture(task).model is network


def test_a_fit_is_read_from_the_cache(parts):
    dataset, _, _ = parts
    first, again = fit_wide(dataset), fit_wide(dataset)
    assert first.seconds > 0 == again.seconds
    assert all(torch.equal(again.model.state_dict()[name], value) for name, value in first.model.state_dict().items())


def test_a_network_that_reads_chunk_by_chunk_keeps_doing_so(parts, waves):
    for dataset, _, task in (parts, waves):
        number = dataset is waves[0]
        settings = {**task.hparams["model"], "bidirectional": False}
        chunked = seqclf.SequenceTask(task.hparams["dataset"], model=settings)
        whole = (Statistics, Kernels, BoostedTrees) if number else (Ngrams, BoostedTrees)
        assert path_kinds("auto", task, dataset) == path_kinds(True, chunked, dataset) == whole
        assert path_kinds("auto", chunked, dataset) == tuple(kind for kind in whole if kind is not Kernels)
    assert path_kinds(["kernels", "statistics"], chunked, waves[0]) == (Kernels, Statistics)


@pytest.mark.parametrize("setting", [["statistics"], ["kernels", "statistics"]])
def test_a_list_of_paths_that_cannot_read_the_fields_is_an_error(parts, setting):
    dataset, _, task = parts
    with pytest.raises(InputError, match="cannot read these fields"):
        path_kinds(setting, task, dataset)
    assert path_kinds([*setting, "ngrams"], task, dataset) == (Ngrams,)


def test_numbers_alone_have_no_ngrams(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("SEQCLF_CACHE", str(cache))
    table = pa.table({"level": [[0.5, float(row)] for row in range(60)], "label": ["a", "b"] * 30})
    pq.write_table(table, tmp_path / "rows.parquet")
    assert fit_wide(seqclf.load_data(str(tmp_path / "rows.parquet"), label="label"), [Ngrams]) is None


@pytest.mark.parametrize(("told_by", "kinds"), [("level", [Statistics]), ("frequency", [Kernels])])
def test_paths_that_add_nothing_are_left_out(tmp_path, cache, monkeypatch, told_by, kinds):
    monkeypatch.setenv("SEQCLF_CACHE", str(cache))
    generator = np.random.default_rng(0)
    labels, time = generator.integers(0, 2, 150), np.arange(40)
    levels, steps = (labels, 0.4) if told_by == "level" else (generator.normal(size=150), 0.3 + 0.3 * labels)
    waves = np.sin(np.broadcast_to(steps, 150)[:, None] * time + generator.uniform(0, 6, (150, 1)))
    rows = 2.0 * np.asarray(levels)[:, None] + waves + 0.3 * generator.normal(size=waves.shape)
    table = pa.table({"level": rows.tolist(), "label": np.array(["a", "b"])[labels]})
    pq.write_table(table, tmp_path / "rows.parquet")
    fit = fit_wide(seqclf.load_data(str(tmp_path / "rows.parquet"), label="label"))
    assert [type(path) for path in fit.paths] == kinds


def test_trees_take_part_where_two_features_tell_a_class_together(tmp_path, cache, monkeypatch):
    """Neither the mean of the numbers nor the frequency of the letters tells anything alone."""
    monkeypatch.setenv("SEQCLF_CACHE", str(cache))
    generator = np.random.default_rng(0)
    high, often = generator.integers(0, 2, (2, 400))
    table = pa.table(
        {
            "level": [(value + generator.normal(size=9)).tolist() for value in 2.0 * high],
            "letter": [generator.choice(["a", "b"], 9, p=[0.8, 0.2][:: 1 - 2 * value]).tolist() for value in often],
            "label": np.array(["same", "different"])[high ^ often],
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    dataset = seqclf.load_data(str(tmp_path / "rows.parquet"), label="label")
    fit = fit_wide(dataset)
    assert BoostedTrees in {type(path) for path in fit.paths}
    batches, task = seqclf.SequenceDataModule(dataset.splits), seqclf.SequenceTask(dataset.description())
    mix_wide(dataset, batches, task, fit)
    outputs = split_outputs(task, batches, "validation")
    assert (outputs.logits.argmax(axis=1) == dataset.splits["validation"].labels).mean() > 0.8


def test_a_first_look_spares_the_fit_of_trees_that_add_nothing(waves, monkeypatch, capsys):
    monkeypatch.setattr(BoostedTrees, "fit", lambda *arguments: pytest.fail("trees were fitted"))
    assert BoostedTrees not in {type(path) for path in fit_wide(waves[0]).paths}
    assert "boosted trees left out" in " ".join("".join(capsys.readouterr()).split())


def joined(found, labels):
    joint = JointPaths(labels, None)
    for fitted in found:
        joint.add(fitted)
    return joint.paths


def test_rows_that_a_dropped_path_did_not_hold_out_still_judge_the_next_one():
    labels = np.arange(200) % 2
    silent, right = np.zeros((200, 2)), 4.0 * np.eye(2)[labels]
    silent[20:] = np.nan  # as in a large split that was sampled
    right[labels == 1] *= 0.2
    first, second, third = (Ngrams([], 2, streams=[]) for _ in range(3))
    found = [FittedPath(first, silent), FittedPath(second, right), FittedPath(third, 4.0 * np.eye(2)[labels])]
    assert joined(found, labels) == [third]
    found[2] = FittedPath(third, np.where(np.arange(200)[:, None] < 20, np.nan, found[2].held_out))
    assert third in joined(found, labels)


def test_a_network_whose_logits_are_not_finite_is_named(parts):
    dataset, batches, task = parts
    with torch.no_grad():
        task.model.output.bias.fill_(torch.nan)
    with pytest.raises(InputError, match="the network: gives logits that are not finite"):
        mix_wide(dataset, batches, task, fit_wide(dataset))


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_logits_of_a_mixture_with_kernels_are_known_for_training_rows_too(waves, monkeypatch, share):
    """Their features were computed in the fit."""

    fix_share(monkeypatch, share)
    dataset, batches, task = waves
    mix = mix_wide(dataset, batches, task, fit_wide(dataset))
    expected = split_outputs(task, batches, "train").logits
    np.testing.assert_allclose(mix.mixed["train"], expected, rtol=0, atol=1e-5)
    again = mix_wide(dataset, batches, without_mixture(task), fit_wide(dataset))
    assert "train" not in again.mixed, "of a fit that was read from the cache"


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_logits_of_the_mixture_are_known_without_a_second_run(parts, monkeypatch, share):
    fix_share(monkeypatch, share)
    dataset, batches, task = parts
    mix = mix_wide(dataset, batches, task, fit_wide(dataset))
    assert set(mix.mixed) == {"validation", list(dataset.splits)[-1]}
    for split, logits in mix.mixed.items():
        expected = split_outputs(task, batches, split).logits
        assert logits.dtype == expected.dtype
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-6, err_msg=split)


def test_a_sampled_fit_says_so_from_the_cache_too(parts, monkeypatch, capsys):
    monkeypatch.setattr(sparse_head, "MAX_WORK", 2000)
    dataset, _, _ = parts
    notes = fit_wide(dataset, [Ngrams]).paths[0].notes
    assert len(notes) == 1 and notes == fit_wide(dataset, [Ngrams]).paths[0].notes
    assert "".join(capsys.readouterr()).replace("\n", " ").count(notes[0]) == 2


def test_more_classes_than_the_limit_are_named(parts, monkeypatch, capsys):
    monkeypatch.setattr("seqclf.runs.mix.MAX_CLASSES", 3)
    dataset, _, task = parts
    assert path_kinds("auto", task, dataset) == ()
    assert "4 classes" in "".join(capsys.readouterr())
