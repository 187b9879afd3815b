"""Keras fit() on TensorFlow."""

from __future__ import annotations

import os
import time
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

import keras
import numpy as np
import tensorflow as tf
import worker
from keras import layers
from worker import Epoch, EpochTrainer, Workload, serve

BUCKET_BOUNDARIES = [12, 16, 20, 24, 28, 33, 39, 46, 55, 65, 80, 110, 160, 240]


class Clock(keras.callbacks.Callback):
    """Notes the start of an epoch and the end of its last step."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended = time.perf_counter()


def build_model(eager: bool) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            layers.Embedding(worker.VOCABULARY, worker.EMBEDDING, mask_zero=True),
            layers.LSTM(worker.HIDDEN),
            layers.LayerNormalization(),
            layers.Dense(worker.CLASSES),
        ]
    )
    optimizer = keras.optimizers.AdamW(
        worker.LEARNING_RATE, weight_decay=worker.WEIGHT_DECAY, epsilon=1e-8, global_clipnorm=worker.CLIP
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, run_eagerly=eager)
    return model


def make_trainer(model: keras.Model, batches: tf.data.Dataset) -> EpochTrainer:
    def epoch() -> Epoch:
        clock = Clock()
        history = model.fit(batches, epochs=1, verbose=0, callbacks=[clock])
        return Epoch(clock.ended - clock.started, history.history["loss"][-1])

    return epoch


def static(workload: Workload) -> EpochTrainer:
    padded = np.zeros((len(workload.labels), workload.max_length), np.int64)
    for row, sequence in enumerate(workload.sequences):
        padded[row, : len(sequence)] = sequence
    rows = tf.data.Dataset.from_tensor_slices((padded, workload.labels)).shuffle(len(padded))
    return make_trainer(build_model(eager=False), rows.batch(worker.BATCH).prefetch(tf.data.AUTOTUNE))


def bucketed(workload: Workload, eager: bool = False) -> EpochTrainer:
    flat, lengths = np.concatenate(workload.sequences), [len(sequence) for sequence in workload.sequences]
    ragged = tf.RaggedTensor.from_row_lengths(flat, lengths)
    rows = tf.data.Dataset.from_tensor_slices((ragged, workload.labels)).shuffle(len(lengths))
    # A single row of a ragged tensor is dense, but its static shape does not say so.
    rows = rows.map(lambda tokens, label: (tf.ensure_shape(tokens, [None]), label))
    batches = rows.bucket_by_sequence_length(
        lambda tokens, _: tf.shape(tokens)[0], BUCKET_BOUNDARIES, [worker.BATCH] * (len(BUCKET_BOUNDARIES) + 1)
    )
    return make_trainer(build_model(eager), batches.prefetch(tf.data.AUTOTUNE))


def eager(workload: Workload) -> EpochTrainer:
    return bucketed(workload, eager=True)


if __name__ == "__main__":
    serve({"static": static, "bucketed": bucketed, "eager": eager})
