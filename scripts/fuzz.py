"""Fuzz the readers and predictions: mutated files end in success or in one clear error line, and no row is lost.

    python scripts/fuzz.py [--of readers] [--files 2000] [--seed 0] [--only NUMBER …] [--keep DIR]

`--of readers` prepares mutated files, as a training does (tests/fuzzing/cases.py). The others predict
(tests/fuzzing/predictions.py): `bundles` with mutated bundles whose hashes are valid, and `inputs` of mutated files.
Worker processes run the cases, so that a crash or a hang is
a finding too. Each finding is printed with the number of its file, which `--only` makes again and `--keep` leaves in a
folder. Then come tables of outcomes, and one JSON object as the last line. The exit code is 1 if there was a finding.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fuzzing import bundle_bases, predictions  # noqa: E402
from fuzzing.bases import bases  # noqa: E402
from fuzzing.cases import Outcome, examine, make_case  # noqa: E402

TIMEOUT_S = 20  # per message; a file sends two
STATUSES = ("success", "error", "finding")


class Suite(NamedTuple):
    """A kind of cases. `make`: function of the seed, the number and the folder of a case, which makes the case.

    `examine`: function of the case and its folder, which returns an outcome. `bundles`: names of the bundles that the
    cases start from; `make` then gets their folder as a fourth argument.
    """

    make: Any
    examine: Any
    bundles: tuple[str, ...] = ()


FILE_BUNDLES = tuple(f"{bundle_bases.FILE_PREFIX}{kind}" for kind in bases())
SUITES = {
    "readers": Suite(make_case, examine),
    "bundles": Suite(predictions.make_bundle_case, predictions.examine_bundle, bundle_bases.KINDS),
    "inputs": Suite(predictions.make_input_case, predictions.examine_input, FILE_BUNDLES),
}


def serve(connection: Any, seed: int, keep: str | None, name: str = "readers", bundles: Path | None = None) -> None:
    """Examine the files whose numbers arrive, until None does. `name`: name of the suite in `SUITES`.

    Sends a preliminary outcome before each file, so that the parent knows what a crash was caused by.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    suite, more = SUITES[name], () if bundles is None else (bundles,)
    while (number := connection.recv()) is not None:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        case = suite.make(seed, number, folder, *more)
        connection.send(Outcome(number, case.kind, case.mutations, "died"))
        outcome = suite.examine(case, folder)
        if outcome.findings and keep is not None:
            keep_case(folder, Path(keep) / f"{number:05d}", outcome, case.options)
        shutil.rmtree(folder)
        connection.send(outcome)


def keep_case(folder: Path, target: Path, outcome: Outcome, options: Any) -> None:
    """Copy the files of a finding, with its outcome and the options of the reader."""
    shutil.copytree(folder, target, dirs_exist_ok=True, symlinks=True)
    shutil.rmtree(target / "cache", ignore_errors=True)
    (target / "outcome.json").write_text(json.dumps({**asdict(outcome), "options": options}, default=str))


class Worker:
    """A process that examines one file after the other, and is replaced when it dies or hangs."""

    def __init__(self, *arguments: Any):
        self.arguments = arguments  # of `serve`
        self._start()

    def _start(self) -> None:
        # A forked process would inherit locks that other threads of this one hold.
        context = multiprocessing.get_context("spawn")
        self.connection, remote_connection = context.Pipe()
        self.process = context.Process(target=serve, args=(remote_connection, *self.arguments), daemon=True)
        self.process.start()
        remote_connection.close()  # or a dead worker would never read as the end of the file

    def examine(self, number: int) -> Outcome:
        """Examine one file. A crash or a hang becomes a finding."""
        outcome = Outcome(number, "unknown", [], "died")
        try:
            self.connection.send(number)
            for _ in ("preliminary", "final"):
                if not self.connection.poll(TIMEOUT_S):
                    outcome.findings.append(f"takes more than {TIMEOUT_S} s")
                    break
                outcome = self.connection.recv()
            else:
                return outcome
        except (EOFError, OSError):
            self.process.join()
            outcome.findings.append(f"the process died, exit code {self.process.exitcode}")
        self.process.kill()
        self.process.join()
        self._start()
        return outcome

    def stop(self) -> None:
        self.connection.send(None)
        self.process.join()


def run(
    numbers: Iterable[int],
    seed: int,
    keep: str | None,
    worker_count: int,
    name: str = "readers",
    bundles: Path | None = None,
) -> list[Outcome]:
    """Return outcomes in the order of the numbers. Findings are printed as they come.

    `name`, `bundles`: see `serve`.
    """
    workers = [Worker(seed, keep, name, bundles) for _ in range(worker_count)]
    idle_workers: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        idle_workers.put(worker)

    def examine_one(number: int) -> Outcome:
        worker = idle_workers.get()
        try:
            outcome = worker.examine(number)
        finally:
            idle_workers.put(worker)
        for finding in outcome.findings:
            print(f"{describe(outcome)}: {finding}", flush=True)
        return outcome

    try:
        with ThreadPoolExecutor(worker_count) as pool:
            return list(pool.map(examine_one, numbers))
    finally:
        for worker in workers:
            worker.stop()


def describe(outcome: Outcome) -> str:
    return f"{outcome.number}: {outcome.kind}: {', '.join(outcome.mutations)}"


def status_of(outcome: Outcome) -> str:
    return "finding" if outcome.findings else outcome.status


def count_statuses(outcomes: Iterable[Outcome]) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
    """Count statuses by kind of file and by mutation."""
    by_kind: dict[str, Counter[str]] = {}
    by_mutation: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        status = status_of(outcome)
        by_kind.setdefault(outcome.kind, Counter())[status] += 1
        for name in set(outcome.mutations):
            by_mutation.setdefault(name, Counter())[status] += 1
    return by_kind, dict(sorted(by_mutation.items()))


def markdown_table(title: str, counts: dict[str, Counter[str]]) -> str:
    """Return a Markdown table with a row of statuses for each name."""
    lines = [f"| {title} | {' | '.join(STATUSES)} |", f"|---{'|---' * len(STATUSES)}|"]
    for name, by_status in counts.items():
        lines.append(f"| {name} | {' | '.join(str(by_status[status]) for status in STATUSES)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=SUITES, default="readers")
    parser.add_argument("--bundles", type=Path, help="a folder to keep the exported bundles in")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of single files")
    parser.add_argument("--keep", default=None, help="a folder for the files of findings")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--errors", action="store_true", help="print every error line")
    options = parser.parse_args()
    numbers = options.only or range(options.files)
    with tempfile.TemporaryDirectory() as temporary:
        bundles, names = options.bundles or Path(temporary), SUITES[options.of].bundles
        if names:
            bundle_bases.export_in_child(bundles, list(names))
        arguments = (options.of, bundles.absolute()) if names else ()
        outcomes = run(numbers, options.seed, options.keep, options.workers, *arguments)
    if options.errors:
        for outcome in outcomes:
            if outcome.message:
                print(f"{describe(outcome)}: {outcome.message}")
    by_kind, by_mutation = count_statuses(outcomes)
    print(f"\n{markdown_table('kind of file', by_kind)}\n\n{markdown_table('mutation', by_mutation)}\n")
    total = Counter(map(status_of, outcomes))
    counts = {"success": total["success"], "errors": total["error"], "findings": total["finding"]}
    print(json.dumps({"files": len(outcomes), "seed": options.seed, **counts}))
    return 1 if total["finding"] else 0


if __name__ == "__main__":
    sys.exit(main())
