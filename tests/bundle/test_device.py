"""The device of a session is the one that was asked for, and what `auto` took is said.

The machine of a test has no card: its device file is faked, so that ONNX Runtime looks for CUDA and does not find it.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from seqclf.bundle import session
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.session import CPU, CUDA, explain_run_errors, open_session
from seqclf.commands.predict import predict_text
from seqclf.errors import InputError
from seqclf.system.resources import MEMORY_REMEDY

HAS_CARD = any(Path("/dev").glob("nvidia[0-9]*"))  # of this machine, whose cards the tests hide
without_card = pytest.mark.skipif(HAS_CARD, reason="the card of this machine may work")
with_provider = pytest.mark.skipif(
    CUDA not in onnxruntime.get_available_providers(), reason="ONNX Runtime is built without CUDA"
)
INSTALL = '"onnxruntime-gpu[cuda,cudnn]"'


@pytest.fixture
def card(monkeypatch):
    """A machine whose driver has made a device file. `card(error)`: error of CUDA, or None for that of this machine."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(session, "has_card", lambda: True)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    opened = session._open

    def lacks(error):
        def fail(model, folder, providers, threads):
            if CUDA in providers and error:
                raise RuntimeError(error)
            return opened(model, folder, providers, threads)

        monkeypatch.setattr(session, "_open", fail)

    return lacks


@pytest.fixture
def model(exported):
    return exported("events").folder / "model.onnx"


def refusal(model):
    with pytest.raises(InputError) as error:
        open_session(model, "cuda")
    text = str(error.value)
    assert text.startswith("device=cuda: ") and "device=cpu" in text and INSTALL in text and "\n" not in text
    return text


@without_card
@with_provider
def test_a_silent_fallback_of_onnx_runtime_is_no_cuda(card, model):
    text = refusal(model)
    assert CPU in text and "nvidia-smi" in text
    fallen_back = open_session(model, "auto")
    assert fallen_back.get_providers() == [CPU] and CPU in fallen_back.no_cuda


def test_an_error_of_the_provider_is_no_cuda(card, model):
    card("CUDA failure 2: out of memory\n at somewhere")
    assert "CUDA failure 2: out of memory" in refusal(model)
    assert "out of memory" in open_session(model, "auto").no_cuda


def test_cuda_multiplies_in_full_precision(card, model, monkeypatch):
    """Without the option, ONNX Runtime rounds the factors of a product to 10 bits on a card."""
    opened = []

    class Recorder(session.ModelSession):
        def __init__(self, *arguments, **named):
            opened.append(dict(named["providers"]))
            super().__init__(*arguments, **named)

    monkeypatch.setattr(session, "ModelSession", Recorder)
    open_session(model, "auto")
    assert opened[0] == {CUDA: {"use_tf32": "0"}, CPU: {}}


def test_cuda_without_a_provider_is_refused(card, model, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CPU])
    assert CUDA in refusal(model)


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_cards_are_not_used_and_not_missed(model, monkeypatch, hidden):
    monkeypatch.setattr(Path, "glob", lambda *_: [Path("/dev/nvidia0")])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert session.has_card()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert "CUDA_VISIBLE_DEVICES" in refusal(model)
    opened = open_session(model, "auto")
    assert (opened.provider, opened.no_cuda) == (CPU, None)


@without_card
def test_without_a_card_cuda_is_refused_and_auto_says_nothing(model, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "/dev/nvidia0" in refusal(model)
    opened = open_session(model, "auto")
    assert (opened.provider, opened.no_cuda) == (CPU, None)


def test_a_classifier_says_what_it_took(card, exported):
    bundle = exported("events")
    card("no driver")
    with pytest.raises(InputError, match=r"device=cuda: .* does not start \(no driver\)"):
        Classifier(bundle.folder, device="cuda")
    classifier = Classifier(bundle.folder)
    assert classifier.provider == CPU
    (warning,) = classifier.warnings
    assert CPU in warning and classifier.no_cuda in warning and "no driver" in warning
    for by_field in (None, False):
        result = predict_text(classifier, json.dumps(bundle.sequences[0]), by_field).to_dict()
        assert (result["provider"], result["no_cuda"]) == (CPU, classifier.no_cuda)
    quiet = Classifier(bundle.folder, device="cpu")
    assert quiet.warnings == []
    assert "no_cuda" not in predict_text(quiet, json.dumps(bundle.sequences[0])).to_dict()


def test_a_stream_is_of_the_device_too(card, model):
    card("no driver")
    classifier = Classifier(model.parent)
    classifier._step = model.read_bytes()  # any model: it is loaded, and then the device refused
    classifier.device, classifier.manifest["step"] = "cuda", {"states": []}
    with pytest.raises(InputError, match=r"device=cuda: .*no driver"):
        classifier.stream()


def test_an_error_of_the_card_while_the_model_runs_has_a_remedy():
    with pytest.raises(InputError, match=r"model\.onnx: .*cuDNN.*device=cpu"), explain_run_errors("model.onnx"):
        raise RuntimeError("cuDNN is not available. Install cuDNN")


def test_a_full_memory_is_one_line_with_the_batch():
    lengths = np.array([3, 12_000])
    with pytest.raises(InputError) as raised, explain_run_errors("model.onnx", lengths):
        raise RuntimeError("[ONNXRuntimeError] : 6 : Failed to allocate memory for requested buffer of size 4000000000")
    assert (raised.value.where, raised.value.remedy) == ("model.onnx", "set threads=1")
    assert "2 sequences of up to 12,000 tokens" in raised.value.problem


def test_a_memory_too_small_for_the_model_is_no_fault_of_the_bundle(monkeypatch, tmp_path):
    def fail(*arguments):
        raise RuntimeError("std::bad_alloc")

    monkeypatch.setattr(session, "_open", fail)
    with pytest.raises(InputError) as raised:
        open_session(tmp_path / "model.onnx", "cpu")
    assert raised.value.remedy == MEMORY_REMEDY
