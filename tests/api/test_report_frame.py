"""The report of a run in a notebook, which may have been written by somebody else."""

import re

from support.browser import browse, needs_chromium

import seqclf

REPORT = """<html><head></head><body><a href="#there">link</a><h1 id="there">Heading</h1><script>
let seen;
try { seen = parent.document.title; } catch (error) { seen = error.name; }
document.querySelector("a").click();
setTimeout(() => parent.postMessage(`${seen} ${location.hash} ${origin}`, "*"));
</script></body></html>"""
NOTEBOOK = """<title>secret</title><p></p>
<script>onmessage = event => document.querySelector("p").append(event.data)</script>"""


def shown(folder):
    (folder / "config.yaml").write_text("{}")
    (folder / "report.html").write_text(REPORT)
    return seqclf.Run(folder)._repr_html_()


def test_the_frame_lets_scripts_run_but_not_as_part_of_the_notebook(tmp_path):
    assert re.findall(r"sandbox=\"(.*?)\"", shown(tmp_path)) == ["allow-scripts"]


@needs_chromium
def test_a_script_of_a_report_runs_without_access_to_the_notebook(tmp_path):
    (tmp_path / "notebook.html").write_text(NOTEBOOK + shown(tmp_path))
    # Without a budget the load event ends it. A busy machine may start the frame's own process after its end.
    for budget_ms in (2_000, 20_000, 60_000):
        page = browse(tmp_path, "notebook.html", "--dump-dom", f"--virtual-time-budget={budget_ms}")
        if "<p></p>" not in page:
            break
    assert re.search(r"<p>(.*?)</p>", page).group(1) == "SecurityError #there null"
