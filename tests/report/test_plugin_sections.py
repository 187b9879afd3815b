"""Sections of report.html that another package adds by an entry point."""

import re

import numpy as np
import pytest
from support.plugin_package import documented_example, install_package

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.results import Evaluation, SplitOutputs, evaluate_split
from seqclf.evaluation.run_result import RunResult
from seqclf.report.page import builtin_sections, write_report
from seqclf.report.report import Report
from seqclf.system.plugins import REPORT_SECTIONS

COSTS = documented_example("A report section")
OWNER = documented_example("A report section", number=2)
BRIER = documented_example("A metric", number=2)
OWNER_TEMPLATE = documented_example("A report section", "html")
FAULTY = """
from seqclf.extend import ReportSection, Section, Template


class Faulty(ReportSection):
    position = 5

    def build(self, report):
        raise ZeroDivisionError("of two\\nlines")


class Unrendered(ReportSection):
    position = 5

    def build(self, report):
        return Section("Unrendered", [Template("run/threshold.html")])


class Before(ReportSection):
    position = 5

    def build(self, report):
        return Section("run/table.html", {"heading": "Costs"})  # the form before blocks


class Silent(ReportSection):
    position = 5

    def build(self, report):
        return None


class Scripted(ReportSection):
    position = 45

    def build(self, report):
        context = {"label": "a", "owner": "b"}
        template = Template("mypackage:templates/owner.html", context, script="mypackage:scripts/title.js")
        return Section("Scripted", [template])


NO_SECTION = 1
"""


@pytest.fixture
def install(monkeypatch, tmp_path):
    """`install(name="module:Class", …)` installs a package with these entry points."""
    modules = {"costs.py": COSTS, "owner.py": OWNER, "faulty.py": FAULTY, "brier.py": BRIER}
    files = {"templates/owner.html": OWNER_TEMPLATE, "scripts/title.js": "document.title = 'scripted';"}

    def build(**entries):
        install_package(monkeypatch, tmp_path, "mypackage", {**modules, **files}, {REPORT_SECTIONS: entries})

    return build


def report(positive="<i>yes</i>"):
    classes, labels = ["no", "<i>yes</i>"], np.array([0, 0, 0, 1, 1, 1, 1, 1])
    predicted = np.array([0, 0, 1, 0, 0, 1, 1, 1])
    outputs = SplitOutputs(np.eye(2)[predicted] * 3.0, labels, np.full(8, 5), np.zeros(8, bool))
    decision = Decision(positive=positive)
    metrics = evaluate_split(outputs, classes, positive, decision, with_intervals=False)
    result = RunResult(splits={"test": metrics}, decision=decision)
    return Report(title="t", result=result, evaluation=Evaluation({"test": outputs}, decision), mistakes=[])


def page(tmp_path, **options):
    write_report(report(**options), tmp_path / "report.html")
    return (tmp_path / "report.html").read_text(encoding="utf-8")


def headings(content):
    return re.findall("<h2>(.*?)</h2>", content)


def test_the_built_in_sections_stand_in_their_order():
    positions = {type(section).__module__.rpartition(".")[2]: section.position for section in builtin_sections()}
    order = [
        "verdict",
        "threshold",
        "tokens_read",
        "epochs",
        "confusion",
        "classes",
        "lengths",
        "calibration",
        "mistakes",
    ]
    assert sorted(positions, key=positions.get) == [*order, "provenance"]
    assert len(set(positions.values())) == len(positions)


def test_sections_of_a_package_stand_at_their_position(install, tmp_path):
    before = headings(page(tmp_path))
    install(owner="owner:Owner", costs="costs:Costs", scripted="faulty:Scripted", silent="faulty:Silent")
    after = headings(page(tmp_path))
    at = before.index("Confusion") + 1
    assert after == [before[0], "Costs", *before[1:at], "Scripted", *before[at:], "Owner"]
    assert "Costs" not in headings(page(tmp_path, positive=None))


def test_a_metric_of_a_package_is_computed_from_the_probabilities(install, tmp_path):
    install(brier="brier:Brier")
    (brier,) = re.findall(r"<h2>Brier score</h2>.*?</section>", page(tmp_path), re.DOTALL)
    wrong = 1 / (1 + np.exp(-3.0))  # probability of the wrong class in 3 of 8 rows
    expected = (3 * 2 * wrong**2 + 5 * 2 * (1 - wrong) ** 2) / 8
    assert f"{expected:.3f}" in brier


def test_a_section_has_a_table_or_a_template_of_its_package(install, tmp_path):
    install(owner="owner:Owner", costs="costs:Costs", scripted="faulty:Scripted")
    content = page(tmp_path)
    (costs,) = re.findall(r"<h2>Costs</h2>.*?</section>", content, re.DOTALL)
    assert re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", costs.partition("<tbody>")[2]) == [
        "missed",
        "2",
        "240",
        "false alarms",
        "1",
        "5",
    ]
    assert "<p>Questions about &lt;i&gt;yes&lt;/i&gt; go to <b>risk@example.org</b>.</p>" in content
    assert content.count("document.title = 'scripted';") == 1


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("faulty:Faulty", r"ZeroDivisionError\('of two\\nlines'\)"),
        ("faulty:Unrendered", r"UndefinedError\(.* is undefined.*\)"),
        ("faulty:Before", r"its Section holds no blocks; write Section\(heading, .*"),
        ("faulty:NO_SECTION", r"it is no seqclf.report.section.ReportSection"),
        ("missing:Nothing", r"odd: the plugin mypackage.missing:Nothing of mypackage 1.0 cannot be imported .*"),
    ],
)
def test_a_section_that_fails_is_left_out_and_named(install, tmp_path, capsys, target, reason):
    before = page(tmp_path)
    install(odd=target, owner="owner:Owner")
    assert headings(page(tmp_path)) == [*headings(before), "Owner"]
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(rf"report.html: the section 'odd' of mypackage 1.0 is left out: {reason}", line)
