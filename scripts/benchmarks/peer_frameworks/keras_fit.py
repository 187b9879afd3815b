"""Keras' fit on TensorFlow."""

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
from worker import Epoch, Trainer, Workload, serve

BOUNDARIES = [12, 16, 20, 24, 28, 33, 39, 46, 55, 65, 80, 110, 160, 240]


class Clock(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.started = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended = time.perf_counter()


def model(eager: bool) -> keras.Model:
    keras.utils.set_random_seed(0)
    built = keras.Sequential(
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
    built.compile(optimizer, loss, run_eagerly=eager)
    return built


def prepare(built: keras.Model, batches: tf.data.Dataset) -> Trainer:
    def epoch() -> Epoch:
        clock = Clock()
        history = built.fit(batches, epochs=1, verbose=0, callbacks=[clock])
        return Epoch(clock.ended - clock.started, history.history["loss"][-1])

    return epoch


def static(workload: Workload) -> Trainer:
    padded = np.zeros((len(workload.labels), workload.longest), np.int64)
    for row, sequence in enumerate(workload.sequences):
        padded[row, : len(sequence)] = sequence
    rows = tf.data.Dataset.from_tensor_slices((padded, workload.labels)).shuffle(len(padded))
    return prepare(model(eager=False), rows.batch(worker.BATCH).prefetch(tf.data.AUTOTUNE))


def bucketed(workload: Workload, eager: bool = False) -> Trainer:
    flat, lengths = np.concatenate(workload.sequences), [len(sequence) for sequence in workload.sequences]
    ragged = tf.RaggedTensor.from_row_lengths(flat, lengths)
    rows = tf.data.Dataset.from_tensor_slices((ragged, workload.labels)).shuffle(len(lengths))
    rows = rows.map(lambda tokens, label: (tf.ensure_shape(tokens, [None]), label))  # a row itself is not ragged
    batches = rows.bucket_by_sequence_length(
        lambda tokens, _: tf.shape(tokens)[0], BOUNDARIES, [worker.BATCH] * (len(BOUNDARIES) + 1)
    )
    return prepare(model(eager), batches.prefetch(tf.data.AUTOTUNE))


def eager(workload: Workload) -> Trainer:
    return bucketed(workload, eager=True)


if __name__ == "__main__":
    serve({"static": static, "bucketed": bucketed, "eager": eager})
