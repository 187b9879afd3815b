"""Mutated files through the readers: each must end in success or in one clear error line, and no row may be lost.

    python scripts/fuzz.py [--files 2000] [--seed 0] [--only NUMBER …] [--keep DIR]

Files are made and checked by tests/fuzzing/cases.py, in processes of their own, so that a crash or a hang is a finding
too. What is found is printed with the number of its file, which `--only` makes again; `--keep` leaves it in a folder.
Then a table of outcomes, and as the last line one JSON object. The exit code is 1 if anything was found.
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
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from fuzzing.cases import Outcome, examine, make_case  # noqa: E402

SLOWEST_S = 20
STATUSES = ("success", "error", "finding")


def serve(connection: Any, seed: int, keep: str | None) -> None:
    """Examine the files whose numbers come in, until there are no more; says which phase it is in beforehand."""
    os.environ["OMP_NUM_THREADS"] = "1"
    while (number := connection.recv()) is not None:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        case = make_case(seed, number, folder)
        connection.send(Outcome(number, case.base.kind, case.mutations, "died"))
        outcome = examine(case, folder)
        if outcome.findings and keep is not None:
            kept = Path(keep) / f"{number:05d}"
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            shutil.rmtree(kept / "cache", ignore_errors=True)
            (kept / "outcome.json").write_text(json.dumps({**asdict(outcome), "options": case.options}, default=str))
        shutil.rmtree(folder)
        connection.send(outcome)


class Worker:
    """A process that examines one file after the other; a new one takes its place if it dies or hangs."""

    def __init__(self, seed: int, keep: str | None):
        self.arguments = (seed, keep)
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, *self.arguments), daemon=True)
        self.process.start()
        other.close()

    def examine(self, number: int) -> Outcome:
        found = Outcome(number, "unknown", [], "died")
        try:
            self.connection.send(number)
            for _ in range(2):  # what the file is, then what came of it
                if not self.connection.poll(SLOWEST_S):
                    found.findings.append(f"takes more than {SLOWEST_S} s")
                    break
                found = self.connection.recv()
            else:
                return found
        except (EOFError, OSError):
            self.process.join()
            found.findings.append(f"the process died, exit code {self.process.exitcode}")
        self.process.kill()
        self.process.join()
        self._start()
        return found

    def stop(self) -> None:
        self.connection.send(None)
        self.process.join()


def run(numbers: Iterable[int], seed: int, keep: str | None, workers: int) -> list[Outcome]:
    """Outcomes in the order of the numbers; findings are printed as they come."""
    with ThreadPoolExecutor(workers) as pool:
        own = [Worker(seed, keep) for _ in range(workers)]
        free = list(own)

        def one(number: int) -> Outcome:
            worker = free.pop()
            try:
                found = worker.examine(number)
            finally:
                free.append(worker)
            for finding in found.findings:
                print(f"{number}: {found.kind}: {', '.join(found.mutations)}: {finding}", flush=True)
            return found

        try:
            return list(pool.map(one, numbers))
        finally:
            for worker in own:
                worker.stop()


def status_of(outcome: Outcome) -> str:
    return "finding" if outcome.findings else outcome.status


def table(title: str, counts: dict[str, Counter[str]]) -> str:
    """Rows of a Markdown table, a name and its outcomes each."""
    lines = [f"| {title} | {' | '.join(STATUSES)} |", f"|---{'|---' * len(STATUSES)}|"]
    lines += [f"| {name} | {' | '.join(str(own[status]) for status in STATUSES)} |" for name, own in counts.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of single files")
    parser.add_argument("--keep", default=None, help="a folder for the files of findings")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--errors", action="store_true", help="print every error line")
    chosen = parser.parse_args()
    outcomes = run(chosen.only or range(chosen.files), chosen.seed, chosen.keep, chosen.workers)
    kinds: dict[str, Counter[str]] = {}
    mutations: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        if chosen.errors and outcome.message:
            print(f"{outcome.number}: {outcome.kind}: {', '.join(outcome.mutations)}: {outcome.message}")
        kinds.setdefault(outcome.kind, Counter())[status_of(outcome)] += 1
        for name in set(outcome.mutations):
            mutations.setdefault(name, Counter())[status_of(outcome)] += 1
    print("\n" + table("kind of file", kinds) + "\n\n" + table("mutation", dict(sorted(mutations.items()))) + "\n")
    total = Counter(map(status_of, outcomes))
    found = {"success": total["success"], "errors": total["error"], "findings": total["finding"]}
    print(json.dumps({"files": len(outcomes), "seed": chosen.seed, **found}))
    return 1 if total["finding"] else 0


if __name__ == "__main__":
    sys.exit(main())
