"""Section of report.html: cost of the mistakes."""

import numpy as np

from seqclf.extend import Report, ReportSection, Section, Table, Text, number

EUROS = {"missed": 120, "false alarms": 5}


class Costs(ReportSection):
    """Cost of missed positive rows and of false alarms."""

    position = 15  # after the verdict

    def build(self, report: Report) -> Section | None:
        index = report.positive_index
        if index is None:
            return None
        confusion = np.array(report.metrics.confusion)  # (true class, predicted class)
        right = confusion[index, index]
        counts = {"missed": confusion[index].sum() - right, "false alarms": confusion[:, index].sum() - right}
        rows = [[name, number(int(count)), number(int(count) * EUROS[name])] for name, count in counts.items()]
        table = Table({"mistakes": "text", "rows": "number", "euros": "number"}, rows)
        return Section("Costs", [Text(f"Rows of {report.split}."), table])
