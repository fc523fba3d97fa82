# SPDX-License-Identifier: Apache-2.0
"""The model options of explain "text", compare and heads (cli/model_options.h): a mapped checkpoint gives the same output
in less memory; NaN in it is rejected by name, or accepted on request; activations that are not finite are reported in
one line; other subcommands do not have these options. Names of models are not paths."""

import json
import resource
import struct

import pytest

from program import environment, fail, succeed
from sentence_model import make_folder

A = "he sat on the bank of the river"
COMMANDS = [("explain", A), ("compare", "bank", A, "she put her money in the bank"), ("heads", A)]
UTF8 = environment(LANG="C.UTF-8", REGARD_THREADS="1")
each_command = pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])


@pytest.fixture(name="folder")
def fixture_folder(tmp_path):
    (tmp_path / "model").mkdir()
    return make_folder(tmp_path / "model")


def set_number(folder, tensor, index, x):
    """Writes one f32 into the checkpoint and returns its byte offset in the file."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    length, = struct.unpack_from("<Q", data)
    at = 8 + length + json.loads(data[8:8 + length])[tensor]["data_offsets"][0] + 4 * index
    struct.pack_into("<f", data, at, x)
    path.write_bytes(data)
    return at


def add_unread_bytes(folder, count):
    """Adds a tensor that no encoder reads: zeros in a sparse file, which take no disk space."""
    path = folder / "model.safetensors"
    data = path.read_bytes()
    length, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    end = len(data) - 8 - length
    header["pooler.dense.weight"] = {"dtype": "I8", "shape": [count], "data_offsets": [end, end + count]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data[8 + length:])
        file.truncate(8 + len(text) + end + count)


def shown(command, folder, *options, **more):
    return succeed(*command, "--model", folder, *options, env=UTF8, **more).decode()


def document(command, folder, *options):
    data = json.loads(shown(command, folder, "--json", *options))
    del data["command"]
    return data


@each_command
def test_a_mapped_checkpoint_gives_the_same_output(folder, command):
    assert shown(command, folder, "--mmap") == shown(command, folder)
    assert document(command, folder, "--mmap") == document(command, folder)


@each_command
def test_a_mapped_checkpoint_is_not_copied_to_memory(folder, tmp_path, command):
    add_unread_bytes(folder, 256 << 20)

    def limit():
        resource.setrlimit(resource.RLIMIT_DATA, (128 << 20, 128 << 20))

    expected = shown(command, folder)
    fail(1, "memory", *command, "--model", folder, cwd=tmp_path / "model", env=UTF8, preexec_fn=limit)
    assert shown(command, folder, "--mmap", preexec_fn=limit) == expected


@each_command
@pytest.mark.parametrize("mapped", [[], ["--mmap"]], ids=["read", "mapped"])
def test_nan_is_rejected_by_name_or_accepted_on_request(folder, command, mapped):
    before = document(command, folder)
    # The row of [PAD], which no text uses.
    at = set_number(folder, "embeddings.word_embeddings.weight", 3, float("nan"))
    fail(1, [f"model.safetensors: byte {at}: tensor \"embeddings.word_embeddings.weight\" contains nan at [0, 3]",
             "--allow-nonfinite"], *command, "--model", folder, *mapped, cwd=folder)
    after = document(command, folder, *mapped, "--allow-nonfinite")
    assert after["model"].pop("sha256") != before["model"].pop("sha256")
    assert after == before


@each_command
@pytest.mark.parametrize("tensor, x, options, words", [
    ("encoder.layer.1.attention.self.query.bias", float("nan"), ["--allow-nonfinite"], "query of layer 1 is nan"),
    ("encoder.layer.0.attention.self.key.bias", float("-inf"), ["--allow-nonfinite"], "key of layer 0 is -inf"),
    ("embeddings.LayerNorm.bias", float("inf"), ["--allow-nonfinite"], "embedded is inf"),
    # Finite, but the product overflows.
    ("encoder.layer.2.attention.self.value.bias", 3e38, [], "of layer 2 is "),
])
def test_nonfinite_activations_are_reported_in_one_line(folder, command, tensor, x, options, words):
    set_number(folder, tensor, 1, x)
    if x == 3e38:
        set_number(folder, tensor.replace("self.value.bias", "output.dense.weight"), 1, -1e30)
    fail(1, [str(folder), words, " at token 0"], *command, "--model", folder, *options, cwd=folder)


@pytest.mark.parametrize("option", ["--mmap", "--allow-nonfinite"])
def test_model_options_are_rejected_without_a_model(tmp_path, option):
    for command in (["attend"], ["lesson", "three-words"], ["info"], ["pull", "minilm"]):
        fail(2, f"unknown option {option}; see regard {command[0]} --help", *command, option, cwd=tmp_path)
    fail(2, f"{option} applies only to a sentence; give one in quotes", "explain", "--input", "x.json", option,
         cwd=tmp_path)
    fail(2, f"{option} takes no value", "heads", A, f"{option}=yes", cwd=tmp_path)


@pytest.mark.parametrize("command", [*COMMANDS, ("embed",), ("similar", A)], ids=lambda command: command[0])
@pytest.mark.parametrize("name", ["minilm", "minilm-int8", "minilm-f16"])
def test_a_model_is_named_by_its_name_and_a_folder_by_its_path(tmp_path, command, name):
    (tmp_path / name).mkdir()
    make_folder(tmp_path / name)
    env = environment(LANG="C.UTF-8", REGARD_CACHE=tmp_path / "cache")
    fail(1, ["no model is installed", "regard pull minilm"], *command, "--model", name, cwd=tmp_path, env=env, stdin=b"x")
    assert succeed(*command, "--model", f"./{name}", cwd=tmp_path, env=env, stdin=b"the bank\n")


def test_the_help_states_the_risk_of_mapping():
    for command in COMMANDS:
        text = " ".join(succeed(command[0], "--help").decode().split())
        assert "if another program modifies the file meanwhile, results may change, or SIGBUS may terminate regard" in text
