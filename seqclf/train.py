"""`python -m seqclf.train`: labelled sequences → a trained model, its scores, and a bundle."""

from __future__ import annotations

from typing import Any

from seqclf.command import command, run_folder


@command("train")
def main(config: dict[str, Any]) -> dict[str, Any] | None:
    """Prepare, train, score, export."""
    from seqclf.checks import check_ranges
    from seqclf.data.prepare import DataOptions, prepare
    from seqclf.reporting.console import console, show_dataset

    check_ranges(config)
    dataset = prepare(DataOptions.build(**config["data"]))
    show_dataset(dataset)
    from seqclf import recipe  # PyTorch is loaded only once the data is known to be good

    run = run_folder()
    result = recipe.train(config, dataset, run)
    if result is not None:
        console.print(f"run: {run}", soft_wrap=True)
    return result


if __name__ == "__main__":
    main()
