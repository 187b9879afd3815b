"""Names that other libraries and commands use for the keys of this package."""

from __future__ import annotations

from collections.abc import Collection

YES_AND_NO = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}

# Names that other libraries and commands use → keys, of which those count that the command has.
HABITS = {
    "lr learning_rate learningrate eta": ["optimizer.lr"],
    "batch_size bs batchsize batch": ["batch_size", "batching.max_sequences", "batching.max_tokens"],
    "epochs epoch n_epochs num_epochs max_epoch nb_epoch num_train_epochs": ["trainer.max_epochs"],
    "steps n_steps num_steps max_step": ["trainer.max_steps", "updates"],
    "hidden_dim hidden hidden_units units n_hidden d_model dim": ["model.hidden_size"],
    "n_layers num_layers n_layer depth": ["model.layers"],
    "n_heads num_heads nhead n_head num_attention_heads attention_heads": ["model.heads"],
    "mlp_ratio": ["model.expansion"],
    "embedding_dim embed_dim emb_dim emb_size embedding": ["model.embedding_size"],
    "drop p_dropout dropout_rate": ["model.dropout"],
    "bidir bi": ["model.bidirectional"],
    "clip grad_clip clip_grad clip_norm max_grad_norm gradient_clip gradient_clipping": ["trainer.gradient_clip_val"],
    "wd l2 decay": ["optimizer.weight_decay"],
    "scheduler lr_scheduler": ["optimizer.schedule.decay"],
    "warmup warmup_ratio warmup_steps": ["optimizer.schedule.warmup"],
    "gpus num_gpus n_gpus n_gpu gpu": ["trainer.devices", "device"],
    "device cuda accelerator": ["trainer.accelerator", "device"],
    "fp16 bf16 amp mixed_precision dtype": ["trainer.precision", "precision"],
    "workers n_workers n_jobs": ["batching.num_workers"],
    "early_stopping early_stopping_patience es_patience": ["patience"],
    "random_state random_seed manual_seed": ["seed"],
    "metric eval_metric": ["monitor", "search.metric"],
    "n_trials num_trials": ["search.trials"],
    "n_threads num_threads": ["threads", "runtime.threads"],
    "output output_dir outdir out out_dir save save_dir run_dir run_folder log_dir logdir save_path results": [
        *("output", "bundle", "hydra.run.dir"),
    ],
    "resume resume_from resume_from_checkpoint ckpt ckpt_path": ["checkpoint", "bundle"],
    "checkpoint model run model_path": ["bundle"],
    "in inputs file csv path dataset data_path filename data test": ["input", "data.test", "data.train"],
    "train_file train_data training x_train train_path": ["data.train"],
    "val valid dev val_file validation_file val_data": ["data.validation"],
    "test_file test_data x_test test_path": ["data.test"],
    "target y labels_column label_column target_column label_col class": ["data.label"],
    "pos_label positive_class positive_label pos": ["data.positive"],
    "class_weight weights weight pos_weight": ["loss.class_weights"],
    "max_len maxlen max_seq_length max_seq_len seq_len sequence_length": ["data.max_length"],
    "sep delim": ["data.delimiter", "delimiter"],
    "test_size test_split test_share": ["data.split.test"],
    "val_size val_split validation_split valid_size validation_size": ["data.split.validation"],
    "n_splits k_folds kfold cv": ["data.split.folds"],
    "text seq": ["sequence"],
    "recall min_rec target_recall": ["decision.min_recall"],
    "cutoff prob_threshold": ["threshold", "decision.min_recall"],
    "wandb_project": ["logger.project"],
    "name run_name experiment_name wandb_name": ["logger.run_name"],
}
BY_HABIT = {name: keys for names, keys in HABITS.items() for name in names.split()}
# Commands whose key for a name differs from that of the others.
BY_COMMAND = {"train": {"file": "data.train", "csv": "data.train", "path": "data.train", "input": "data.train"}}
BY_COMMAND |= dict.fromkeys(("describe", "search", "bench"), BY_COMMAND["train"])
BY_COMMAND["walkthrough"] = {"run": "checkpoint", "bundle": "checkpoint"}
BY_COMMAND["bench"] = {
    **BY_COMMAND["train"],
    **dict.fromkeys(("steps", "n_steps", "num_steps", "max_steps"), "updates"),
}
# Names of settings that a command does without.
NOT_SET = dict.fromkeys(
    ("predict", "evaluate"),
    dict.fromkeys(("batch_size", "bs", "batchsize", "batch"), "rows are batched by their lengths; remove it"),
)
NOT_SET |= dict.fromkeys(
    ("train", "describe", "walkthrough", "search", "bench"),
    dict.fromkeys(
        ("columns", "features", "data.columns", "data.column", "data.features"),
        "fields are one mapping of columns to kinds; write 'data.fields={COLUMN: category}'",
    ),
)
OF_ONE_BATCH = "debug=overfit_one_batch is of seqclf train only; remove it, or use seqclf train"
NOT_SET |= {
    name: {**NOT_SET[name], "debug.steps": OF_ONE_BATCH, "debug.goal": OF_ONE_BATCH}
    for name in ("walkthrough", "search")
}
BY_COMMAND["evaluate"] = {"input": "data.test"}
BY_COMMAND["export"] = {"model": "checkpoint", "input": "checkpoint"}


def known_by_habit(name: str, known: Collection[str]) -> str | None:
    """Return the name among `known` that other libraries call `name`, or None.

    >>> known_by_habit("learning_rate", ["lr", "betas"])
    'lr'
    """
    names = (path.rpartition(".")[2] for path in BY_HABIT.get(name.lower(), []))
    return next((name for name in names if name in known), None)


def as_boolean(value: str) -> str | None:
    """Return true or false for a word that means it, such as yes, or None."""
    word = value.strip().lower()
    return word if word in ("true", "false") else YES_AND_NO.get(word)
