"""A callback of Lightning."""

from pathlib import Path

from lightning.pytorch.callbacks import Callback


class StepLog(Callback):
    """Writes the number of each `every`-th step to the file `steps.txt` in the run folder. Its count is resumed."""

    def __init__(self, every):
        self.every = every
        self.steps = 0

    def on_train_batch_end(self, trainer, *arguments):
        self.steps += 1
        if self.steps % self.every == 0:
            with (Path(trainer.default_root_dir) / "steps.txt").open("a") as file:
                file.write(f"{self.steps}\n")

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state_dict):
        self.steps = state_dict["steps"]
