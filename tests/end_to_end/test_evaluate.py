"""Evaluating a bundle, a finished run and scores: figures, the page, and the comparison with another model."""

import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

BUNDLE = ["bundle=logged/bundle", "data=files", "data.test=test.parquet", "data.label=fraud", "data.id=card"]
FILES = {"report.html", "metrics.json", "scores.parquet"}


def judged(shell, *arguments):
    completed = shell("evaluate", *arguments)
    assert completed.exit_code == 0, completed.stderr
    return completed


def figures(shell, output="evaluation"):
    return json.loads((shell.folder / output / "metrics.json").read_text())


def test_the_files_of_a_run_give_its_metrics_again(shell, trained):
    judged(shell, "run=logged")
    written = json.loads((trained.run / "metrics.json").read_text())
    assert figures(shell) == {"evaluated": "logged", **written}


def test_another_target_and_another_split_are_judged_without_the_model(shell, trained):
    result = judged(shell, "run=logged", "decision.min_recall=0.5", "split=validation").result
    assert (result["split"], result["decision"]["rule"]) == ("validation", "min_recall")
    (target,) = result["decision"]["targets"]  # of a run without a target, whose validation chose no epoch
    assert (target["backed"], target["statement"], target["approximate"]) == (True, "average", True)
    assert not result["use"]


def test_a_target_by_label_is_a_key_of_a_run_and_not_of_a_bundle(shell, trained):
    result = judged(shell, "run=logged", "decision.min_recall={yes: 0.5}", "output=by_label").result
    assert [target["label"] for target in result["decision"]["targets"]] == ["yes"]
    completed = shell("evaluate", *BUNDLE, "decision.min_recall={yes: 0.5}")
    assert completed.exit_code == 2 and "is not for bundle=" in completed.stderr


def test_each_line_of_the_table_of_targets_is_what_evaluate_gives(shell, trained):
    judged(shell, "run=logged", "decision.min_recall=0.8", "output=table")
    rows = figures(shell, "table")["targets"]
    assert len(rows) > 3 and sum(row["asked"] for row in rows) == 1
    for row in rows:
        confidence = [] if row["confidence"] is None else [f"decision.confidence={row['confidence']}"]
        decision = judged(shell, "run=logged", f"decision.min_recall={row['target']}", *confidence).result["decision"]
        assert decision["threshold"] == row["threshold"]
        assert decision["targets"][0]["statement"] == row["statement"]


def test_rows_that_somebody_left_out_back_no_statement(shell, trained):
    judged(shell, "run=logged", "decision.min_recall=0.8")
    result = figures(shell)
    lowest = result["forcing"][0]
    (shell.folder / "ids.txt").write_text(f"{lowest['id']}\n")
    completed = judged(shell, "run=logged", "decision.min_recall=0.8", "decision.ignore=ids.txt")
    some = figures(shell)
    (target,), (before,) = some["decision"]["targets"], result["decision"]["targets"]
    assert (target["backed"], target["basis"], target["rows"]) == (False, "by_hand", before["rows"] - 1)
    assert "1 row left out by hand (split threshold): no statement holds" in " ".join(completed.stderr.split())
    assert lowest["id"] != some["forcing"][0]["id"]
    for split in ("validation", "test"):  # only the rows that set the threshold are left out
        assert some[split]["rows"] == result[split]["rows"]


def ids_of(trained, split):
    (network,) = (trained.run / "scores").glob("*-network.parquet")
    table = pq.read_table(network)
    return table.filter(pa.compute.equal(table["split"], split))["id"].to_pylist()


@pytest.mark.parametrize(
    ("named", "error"),
    [
        (lambda trained: ["nobody"], "no row that sets the threshold (split threshold) has the id 'nobody'"),
        (lambda trained: ids_of(trained, "test")[:2], "no row that sets the threshold (split threshold) has the id"),
        (lambda trained: ids_of(trained, "threshold"), "leaves no row of threshold"),
        (lambda trained: [], "names no row; give a text file of ids, one a line"),
    ],
)
def test_ids_that_cannot_be_left_out_are_refused(shell, trained, named, error):
    (shell.folder / "refused.txt").write_text("\n".join(named(trained)))
    refused = shell("evaluate", "run=logged", "decision.min_recall=0.8", "decision.ignore=refused.txt")
    assert refused.exit_code == 2
    assert refused.stderr.splitlines()[-1].startswith(f"error: decision.ignore=refused.txt: {error}")


def test_an_id_of_several_rows_is_named_and_one_of_another_split_too_leaves_that_split_as_it_is(shell, trained):
    (network,) = (trained.run / "scores").glob("*-network.parquet")
    table = pq.read_table(network)
    splits, ids = (table[name].to_pylist() for name in ("split", "id"))
    ids[splits.index("test")] = ids[splits.index("threshold")]
    (shell.folder / "shared.txt").write_text(ids[splits.index("threshold")])
    column = table.column_names.index("id")
    arguments = ["scores=shared.parquet", "decision.min_recall=0.8"]
    pq.write_table(table.set_column(column, "id", pa.array(ids)), shell.folder / "shared.parquet")
    judged(shell, *arguments)
    before = figures(shell)
    judged(shell, *arguments, "decision.ignore=shared.txt")
    after = figures(shell)
    assert after["test"]["rows"] == before["test"]["rows"] == splits.count("test")
    ids[splits.index("threshold") + 1] = ids[splits.index("threshold")]
    pq.write_table(table.set_column(column, "id", pa.array(ids)), shell.folder / "shared.parquet")
    refused = shell("evaluate", *arguments, "decision.ignore=shared.txt")
    assert refused.exit_code == 2 and f"2 rows of threshold have the id '{ids[splits.index('test')]}'" in refused.stderr


def test_the_scores_of_a_run_are_judged_with_its_statement(shell, trained):
    (network,) = (trained.run / "scores").glob("*-network.parquet")
    of_run = judged(shell, "run=logged", "decision.min_recall=0.5").result["decision"]
    completed = judged(shell, f"scores={network}", "decision.min_recall=0.5")
    assert completed.result["decision"] == of_run and of_run["targets"][0]["basis"] == "cross_fitted"
    assert "On average, approximately" in " ".join(completed.stderr.split())


def test_scores_of_another_tool_are_compared_with_those_of_a_run(shell, trained):
    (network,) = (trained.run / "scores").glob("*-network.parquet")
    table = pq.read_table(network)
    table = table.filter(pa.compute.equal(table["split"], "test"))
    mine = table.select(["split", "id", "label"]).append_column("probabilities", pa.array([[0.4, 0.6]] * len(table)))
    backwards = mine.take(pa.array(range(len(mine))[::-1])).replace_schema_metadata({})
    pq.write_table(backwards, shell.folder / "mine.parquet")
    completed = shell("evaluate", "scores=mine.parquet", f"against={network}")
    assert completed.exit_code == 1
    result = json.loads(completed.stdout)
    yes = sum(label == "yes" for label in mine["label"].to_pylist())
    assert result["accuracy"] == pytest.approx(yes / len(mine), abs=1e-6)
    assert result["against"]["rows"] == len(mine) and not result["against"]["better"]
    assert "<h2>Compared</h2>" in (shell.folder / "evaluation/report.html").read_text()


def test_a_bundle_writes_scores_that_are_judged_as_it_evaluates(shell, trained):
    evaluated = judged(shell, *BUNDLE).result
    assert {path.name for path in (shell.folder / "evaluation").iterdir()} == FILES
    result = judged(shell, "scores=evaluation/scores.parquet").result
    assert {path.name for path in (shell.folder / "evaluation").iterdir()} == FILES, "what it read stays"
    for metric in ("loss", "accuracy", "recall"):
        assert result[metric] == pytest.approx(evaluated[metric], abs=1e-6)


def test_a_threshold_is_one_of_the_probabilities_that_the_bundle_shows(shell, trained):
    evaluated = judged(shell, *BUNDLE, "threshold=0.3").result
    result = judged(shell, "run=logged", "threshold=0.3").result
    assert result["accuracy"] == pytest.approx(evaluated["accuracy"], abs=1e-6)
    refused = shell("evaluate", "run=logged", "threshold=0.3", "decision.min_recall=0.5")
    assert refused.exit_code == 2 and "threshold=0.3: is beside decision.min_recall" in refused.stderr


def test_rows_that_chose_the_model_do_not_judge_it_without_a_word(shell, trained):
    assert judged(shell, "run=logged", "split=validation", "threshold=0.3").result["use"] is False
    assert shell("evaluate", "run=logged", "split=train").exit_code == 2


def test_a_report_on_other_data_shows_no_rows(shell, trained):
    settings = trained.run / "config.yaml"
    before = settings.read_text()
    try:
        settings.write_text(before.replace("test.parquet", "train.jsonl"))
        completed = shell("evaluate", "run=logged")
    finally:
        settings.write_text(before)
    assert completed.exit_code == 0 and "the report shows no rows" in completed.stderr


def test_a_report_is_written_again_from_the_files_of_a_run(shell, trained):
    assert judged(shell, "run=logged").result["report"] == "evaluation/report.html"
    assert {path.name for path in (shell.folder / "evaluation").iterdir()} == FILES - {"scores.parquet"}
    pages = [(folder / "report.html").read_text() for folder in (shell.folder / "evaluation", trained.run)]
    first, second = (re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "", page) for page in pages)
    assert first == second


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "nothing to judge; give bundle=DIR data.test=FILE, run=RUN or scores=FILE"),
        (["run=logged", "scores=mine.parquet"], "run=logged: is beside another input; give"),
        (["run=logged", "by=day"], "by: is not for run=; remove by"),
        ([*BUNDLE, "decision.min_recall=0.5"], "decision.min_recall: is not for bundle=; remove decision.min_recall"),
        (["run=logged", "output=logged"], "output=logged: holds other files than those of an evaluation; name"),
        (["run=logged", "output=test.parquet"], "output=test.parquet: is not a folder; name another folder"),
        (["run=logged", "against=logged/bundle"], "against=logged/bundle: is a bundle; give bundle=DIR"),
        (["run=logged", "against=other.parquet"], "scores of other.parquet: lack rows of test"),
        ([*BUNDLE, "against=x/scores.parquet", "output=x"], "output=x: holds against=x/scores.parquet, which would"),
        (["run=logged", "data.label=fraud"], "data.label: is not for run=; remove data.label"),
        (["run=logge"], "run=logge: no such file or folder; did you mean 'logged'?"),
        (["run=logged/bundle"], "run=logged/bundle: is a bundle; write bundle=DIR"),
        (["bundle=logged/bundle", "data=toy"], "data=toy: is a choice of seqclf train; name the file: data.test=FILE"),
        (["run=logged", "split=new"], "split=new: does not judge this model; the splits are validation, test"),
        (["run=logged", "positive=maybe"], "positive=maybe: no such label; the labels are no, yes"),
    ],
)
def test_a_user_error_is_one_line(shell, trained, arguments, error):
    (network,) = (trained.run / "scores").glob("*-network.parquet")
    table = pq.read_table(network)
    pq.write_table(table.slice(table["split"].to_pylist().index("test") + 1), shell.folder / "other.parquet")
    (shell.folder / "x").mkdir(exist_ok=True)
    (shell.folder / "x/metrics.json").write_text('{"evaluated": "logged"}')
    shutil.copy(shell.folder / "other.parquet", shell.folder / "x/scores.parquet")
    completed = shell("evaluate", *arguments)
    assert completed.exit_code == 2 and completed.stderr.splitlines()[-1].startswith(f"error: {error}")


def test_a_run_of_which_a_step_is_half_written_is_named(shell, trained):
    facts = trained.run / "data.json"
    content = facts.read_text()
    try:
        for damaged in (content[:-20], content.replace('"leaks"', '"leak"')):
            facts.write_text(damaged)
            completed = shell("evaluate", "run=logged")
            assert completed.exit_code == 2 and "run=logged: is not as this version writes a run" in completed.stderr
    finally:
        facts.write_text(content)


@pytest.mark.parametrize("trust", [(), ("trust=evil",)])
def test_a_report_runs_no_code_that_the_user_did_not_trust(shell, trained, trust):
    """The folder of a run may come from somebody else."""
    run, made = shell.folder / f"received{len(trust)}", shell.folder / f"made{len(trust)}"
    shutil.copytree(trained.run, run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["generator"] = {"_target_": "evil.make"}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    (shell.folder / "code").mkdir(exist_ok=True)
    code = "import os, pathlib\ndef make(folder):\n    pathlib.Path(os.environ['MADE']).touch()\n"
    (shell.folder / "code" / "evil.py").write_text(code)
    variables = {"PYTHONPATH": str(shell.folder / "code"), "MADE": str(made)}
    completed = shell("evaluate", f"run={run}", *trust, **variables)
    assert completed.exit_code == 0 and "the report shows no rows" in completed.stderr
    assert made.exists() == bool(trust) and ("set trust=evil" in completed.stderr) == (not trust)


def test_the_exit_code_says_whether_a_model_is_better(shell, trained):
    """The run, its bundle and its file of scores are one model, which is not better than itself."""
    (network,) = (trained.run / "scores").glob("*-network.parquet")
    table = pq.read_table(network)
    weak = pa.array([[0.0, float(row % 2)] for row in range(len(table))], table.schema.field("logits").type)
    column = table.column_names.index("logits")
    pq.write_table(table.set_column(column, "logits", weak), shell.folder / "weak.parquet")
    before = (trained.run / "report.html").read_bytes()
    for subject in (["run=logged"], BUNDLE, [f"scores={network}"]):
        equal = "logged/bundle" if subject is BUNDLE else "logged"
        for other, code in ((equal, 1), ("weak.parquet", 0)):
            completed = shell("evaluate", *subject, f"against={other}")
            result = json.loads(completed.stdout)
            found = result["against"]
            assert (completed.exit_code, found["better"]) == (code, code == 0), completed.stderr
            assert found["rows"] == result["rows"] and figures(shell)["against"] == found
            assert (found["comparisons"][0]["difference"] > 0) == found["better"]
    assert (trained.run / "report.html").read_bytes() == before


def test_a_run_is_judged_by_its_scores_though_its_bundle_is_of_another_version(shell, trained):
    shutil.copytree(trained.run, shell.folder / "earlier")
    manifest = shell.folder / "earlier/bundle/manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 1}))
    completed = judged(shell, "run=earlier", "output=of_earlier")
    assert "worst errors are not explained" in completed.stderr
    assert figures(shell, "of_earlier")["test"] == json.loads((trained.run / "metrics.json").read_text())["test"]
