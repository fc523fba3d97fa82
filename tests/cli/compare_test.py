# SPDX-License-Identifier: Apache-2.0
"""`regard compare`, `regard heads` and `regard explain --save` on a small model with random parameters: consistency of
the data, checked with NumPy; the form of the text; and the one-line error of each invalid input."""

import json

import numpy as np
import pytest

from program import environment, fail, run, succeed, tree
from sentence_model import make_folder

A = "he sat on the bank of the river"
B = "she put her money in the bank"
C = "they walked along the river bank at dawn"
UNICODE = environment(LC_ALL="C.UTF-8")


@pytest.fixture(name="model", scope="module")
def fixture_model(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("model"))


def compared(model, *arguments):
    document = json.loads(succeed("compare", *arguments, "--model", model, "--json"))
    assert list(document)[:4] == ["schema", "command", "version", "instruction_set"]
    assert document["schema"] == "regard/1" and len(document["model"]["sha256"]) == 64
    return document


def measured(model, *arguments, **options):
    document = json.loads(succeed("heads", *arguments, "--model", model, "--json", **options))
    assert list(document)[0] == "schema" and document["schema"] == "regard/1"
    return document


# ---- compare


def test_the_json_is_consistent(model):
    document = compared(model, "bank", A, B, C)
    assert [sentence["name"] for sentence in document["sentences"]] == ["A", "B", "C"]
    assert [sentence["text"] for sentence in document["sentences"]] == [A, B, C]
    assert document["sentences"][0]["tokens"] == ["[CLS]", *A.split(), "[SEP]"]
    assert document["stages"] == ["word", "+position", "L0", "L1", "L2"]
    assert [pair["sentences"] for pair in document["pairs"]] == [["A", "B"], ["A", "C"], ["B", "C"]]
    floor = np.array(document["floor"])
    for pair in document["pairs"]:
        cosine = np.array(pair["cosine"])
        assert cosine[0] == 1
        np.testing.assert_allclose(pair["above_floor"], (cosine - floor) / (1 - floor), rtol=1e-12)
        np.testing.assert_allclose(np.array(pair["share"]).sum(axis=1), 1, rtol=1e-12)
    assert [control["word"] for control in document["pairs"][1]["controls"]] == ["the", "river"]
    for sentence, attention in zip(document["sentences"], document["attention"]):
        assert np.array(attention).shape == (3, 4, len(sentence["words"]))
        np.testing.assert_allclose(np.array(attention).sum(axis=2), 1, rtol=1e-6)


def test_json_includes_the_comparison_with_hidden_words(model):
    plain, hidden = compared(model, "bank", A, B, C), compared(model, "bank", A, B, C, "--hide", "river")
    assert "hidden" not in plain
    assert hidden["pairs"] == plain["pairs"]
    after = hidden["hidden"]
    assert after["words"] == ["river"] and len(after["others"]) == 15 and after["others_left_out"] == 0
    river = next(i for i, word in enumerate(hidden["sentences"][0]["words"]) if word["text"] == "river")
    assert not np.array(after["attention"][0])[:, :, river].any()
    assert np.array(hidden["attention"][0])[:, :, river].all()
    assert after["pairs"][0]["cosine"][1] == plain["pairs"][0]["cosine"][1]
    assert after["pairs"][0]["cosine"][2] != plain["pairs"][0]["cosine"][2]


def printed(number):
    return f"{number:.3f}".replace("-", "−")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_text_agrees_with_the_json(model, width):
    document = compared(model, "bank", A, B, C)
    text = succeed("compare", "bank", A, B, C, "--model", model,
                   env=environment(LC_ALL="C.UTF-8", COLUMNS=str(width))).decode()
    assert max(map(len, text.splitlines())) <= width
    row = " ".join(line for line in text.splitlines() if line.startswith("  A and C  ")).split()
    numbers = [word for word in row if word[-1].isdigit()]
    assert numbers == [printed(number) for number in document["pairs"][1]["cosine"]]
    assert "A  he sat on the [bank] of the river" in text
    assert "other words" in text and "control" in text


def test_full_shows_every_pair_and_head(model):
    text = succeed("compare", "bank", A, B, C, "--full", "--model", model, env=UNICODE).decode()
    for expected in ("B and C", "“river” A,C", "Which heads make B and C differ?", "H3", "100 %"):
        assert expected in text


@pytest.mark.parametrize("arguments, words", [
    ([], "give a word and at least two sentences"),
    (["bank", A], "give a word and at least two sentences"),
    (["nope", A, B], 'sentence A: "nope" is not in this text; expected one of [CLS], he'),
    (["the", A, B], 'sentence A: "the" occurs 2 times in this text; expected one of the#0 (on the bank) or the#1 (of the river)'),
    (["bank,bank,bank", A, B], "names 3 words, but there are 2 sentences"),
    (["bank", A, B, "--hide", "walk"], "does not occur in any sentence"),
    (["bank", A, B, "--control", "he"], "occurs in 1 of the sentences"),
    (["bank", A, B, "--sort", "x"], "unknown option --sort; see regard compare --help"),
    (["bank", A, "bank " * 30], 'sentence B: "bank" occurs 30 times'),
    (["@1", A, "bank " * 60], "sentence B: the text has 62 tokens and the model has 40 positions"),
])
def test_compare_rejects_invalid_arguments(model, tmp_path, arguments, words):
    fail(2, words, "compare", *arguments, "--model", model, cwd=tmp_path)


def test_a_word_can_be_given_for_each_sentence(model):
    document = compared(model, "bank#1,bank", "the bank is no bank", A)
    assert [sentence["word"] for sentence in document["sentences"]] == [5, 5]
    assert compared(model, "@5,@5", "the bank is no bank", A)["pairs"] == document["pairs"]


def test_long_sentences_are_truncated_on_request(model):
    document = compared(model, "bank#0", A, "bank " * 60, "--truncate")
    assert [sentence["num_truncated_tokens"] for sentence in document["sentences"]] == [0, 22]


# ---- heads


def test_heads_measures_every_head_of_a_text(model):
    document = measured(model, A)
    assert document["over"] == "queries"
    assert [text["text"] for text in document["texts"]] == [A] and "line" not in document["texts"][0]
    assert [(head["layer"], head["head"]) for head in document["heads"]] == [(n, h) for n in range(3) for h in range(4)]
    for head in document["heads"]:
        assert head["entropy"]["n"] == 10 and head["previous"]["n"] == 9
        assert head["entropy"]["uniform"] == pytest.approx(1) and head["distance"]["uniform"] == pytest.approx(3.3)
        assert 0 <= head["entropy"]["mean"] <= 1 and 0 <= head["special"]["mean"] <= 1


def test_measures_agree_with_saved_arrays(model, tmp_path):
    succeed("explain", A, "--model", model, "--save", tmp_path / "s")
    weights = np.load(tmp_path / "s" / "weights.npy").astype(float)
    at = np.arange(weights.shape[2])
    figures = {"entropy": -(weights * np.log(weights)).sum(axis=3) / np.log(len(at)),
               "special": weights[..., 0] + weights[..., -1],
               "self": weights[:, :, at, at], "previous": weights[:, :, at[1:], at[:-1]],
               "next": weights[:, :, at[:-1], at[1:]],
               "distance": (weights * abs(at[:, None] - at)).sum(axis=3)}
    for head in measured(model, A)["heads"]:
        for name, figure in figures.items():
            values = figure[head["layer"], head["head"]]
            assert head[name]["mean"] == pytest.approx(values.mean(), abs=1e-9), name
            assert head[name]["deviation"] == pytest.approx(values.std(ddof=1), abs=1e-9), name


def test_heads_reads_texts_from_standard_input(model):
    lines = f"{A}\n\n{B}\r\n   \n{C}".encode()
    document = measured(model, stdin=lines)
    assert [(text["line"], text["text"]) for text in document["texts"]] == [(1, A), (3, B), (5, C)]
    assert document["heads"][0]["self"]["n"] == 10 + 9 + 10
    assert measured(model, "-", stdin=lines)["heads"] == document["heads"]
    by_sentence = measured(model, "--by", "sentence", stdin=lines)
    assert by_sentence["over"] == "sentences"
    ones = [measured(model, text)["heads"] for text in (A, B, C)]
    for i, head in enumerate(by_sentence["heads"]):
        values = [one[i]["next"]["mean"] for one in ones]
        assert head["next"]["n"] == 3
        assert head["next"]["mean"] == pytest.approx(np.mean(values))
        assert head["next"]["deviation"] == pytest.approx(np.std(values, ddof=1))


def test_heads_are_sorted_and_filtered(model):
    everything = measured(model, A)["heads"]
    chosen = measured(model, A, "--sort", "self", "--min", "0.1")["heads"]
    assert chosen == sorted((head for head in everything if head["self"]["mean"] >= 0.1),
                            key=lambda head: -head["self"]["mean"])
    assert [head["layer"] for head in measured(model, A, "--layer", "1")["heads"]] == [1] * 4
    assert [head["head"] for head in measured(model, A, "--head", "2", "--max=0.5", "--sort", "entropy")["heads"]] == \
        [2] * sum(head["head"] == 2 and head["entropy"]["mean"] <= 0.5 for head in everything)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_table_of_heads_agrees_with_the_json(model, width):
    text = succeed("heads", A, "--model", model, env=environment(LC_ALL="C.UTF-8", COLUMNS=str(width))).decode()
    assert max(map(len, text.splitlines())) <= width
    head = measured(model, A)["heads"][5]
    row = next(line for line in text.splitlines() if line.startswith("L1H1"))
    assert f"{head['entropy']['mean']:.2f}±{head['entropy']['deviation']:.2f}" in row


@pytest.mark.parametrize("arguments, words", [
    (["--sort", "sink"], ['--sort: unknown measure "sink"', "entropy, special, self"]),
    (["--min", "0.5"], "--min and --max limit the mean of the measure given by --sort; add --sort"),
    (["--layer", "3"], "layer 3 does not exist; expected 0 to 2"),
    (["--by", "word"], '--by is "word"; expected query or sentence'),
    (["--head", "x"], '--head is "x"; expected an integer'),
])
def test_heads_rejects_invalid_arguments(model, tmp_path, arguments, words):
    fail(2, words, "heads", A, *arguments, "--model", model, cwd=tmp_path)


def test_heads_rejects_invalid_standard_input(model, tmp_path):
    fail(1, "standard input: no text found", "heads", "--model", model, stdin=b"\n \r\n", cwd=tmp_path)
    fail(1, "standard input: line 2: the text has 52 tokens and the model has 40 positions", "heads", "--model", model,
         stdin=b"he\n" + b"bank " * 50, cwd=tmp_path)
    assert measured(model, "--truncate", stdin=b"he\n" + b"bank " * 50)["texts"][1]["num_truncated_tokens"] == 12


# ---- untrusted text


UNTRUSTED = ["</script><img onerror>", "\x1b]0;title\x07", "\u202ebank", "\\input{x}", "=1+1"]


@pytest.mark.parametrize("text", UNTRUSTED)
def test_untrusted_text_is_escaped(model, text):
    for arguments in (["compare", "bank#0,bank", f"{text} bank", B], ["heads", text]):
        out = succeed(*arguments, "--model", model, env=UNICODE).decode()
        assert not set(out) & set("\x1b\x07\u202e")
        raw = succeed(*arguments, "--model", model, "--json").decode()
        assert not set(raw) & set("\x1b\x07\u202e<>&")
        document = json.loads(raw)
        assert text in (document["sentences"] if arguments[0] == "compare" else document["texts"])[0]["text"]


# ---- explain --save


def load(folder):
    document = json.loads((folder / "tokens.json").read_text())
    return document, {name: np.load(folder / array["file"]) for name, array in document["arrays"].items()}


def test_saved_arrays_are_consistent(model, tmp_path):
    succeed("explain", A, "--model", model, "--save", tmp_path / "s")
    document, arrays = load(tmp_path / "s")
    assert document["schema"] == "regard/1" and document["text"] == A
    assert document["tokens"] == ["[CLS]", *A.split(), "[SEP]"] and len(document["ids"]) == 10
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == sorted(
        ["tokens.json", *(array["file"] for array in document["arrays"].values())])
    for name, array in document["arrays"].items():
        assert list(arrays[name].shape) == array["shape"] and len(array["axes"]) == arrays[name].ndim
        assert arrays[name].dtype == np.float32 and array["dtype"] == "float32"
    assert document["arrays"]["weights"]["axes"] == ["layer", "head", "query", "key"]
    assert document["arrays"]["hidden_states"]["axes"] == ["state", "token", "dimension"]
    assert arrays["weights"].shape == (3, 4, 10, 10) and arrays["hidden_states"].shape == (4, 10, 40)
    q, k, v = (arrays[name].astype(float) for name in ("query", "key", "value"))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    np.testing.assert_allclose(arrays["scores"], scores, rtol=1e-5, atol=1e-5)
    weights = np.exp(scores - scores.max(axis=3, keepdims=True))
    weights /= weights.sum(axis=3, keepdims=True)
    np.testing.assert_allclose(arrays["weights"], weights, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(arrays["context"], weights @ v, rtol=1e-5, atol=1e-5)


def test_hidden_words_have_no_weight_in_saved_arrays(model, tmp_path):
    succeed("explain", A, "--hide", "river", "--model", model, "--save", tmp_path / "s", "--arrays", "weights,scores")
    document, arrays = load(tmp_path / "s")
    assert document["hidden"] == [8]
    assert not arrays["weights"][..., 8].any() and (arrays["scores"][..., 8] == -np.inf).all()


def test_only_the_selected_arrays_are_saved(model, tmp_path):
    succeed("explain", A, "--model", model, "--save", tmp_path / "s", "--arrays", "v,weights")
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["tokens.json", "value.npy", "weights.npy"]
    fail(2, '--arrays names "vale"; expected names from weights, scores, query', "explain", A, "--model", model, "--save",
         "t", "--arrays", "vale", cwd=tmp_path)


def test_an_unwritable_folder_is_reported_and_nothing_is_saved(model, tmp_path):
    (tmp_path / "file").write_text("x")
    fail(1, "file: the folder cannot be created", "explain", A, "--model", model, "--save", "file", cwd=tmp_path)
    fail(1, "a/b: the folder cannot be created", "explain", A, "--model", model, "--save", "a/b", cwd=tmp_path)
    # One array cannot be renamed: none is, and the existing files are unchanged.
    (tmp_path / "d" / "weights.npy").mkdir(parents=True)
    (tmp_path / "d" / "tokens.json").write_text("old")
    fail(1, "weights.npy: is a folder", "explain", A, "--model", model, "--save", "d", cwd=tmp_path)
    assert list(tree(tmp_path / "d").values()) == [b"old"]
    done = run("explain", A, "--model", model, "--save", tmp_path / "new", stdout=open("/dev/full", "wb"))
    assert done.returncode == 1 and not (tmp_path / "new").exists()


def test_unknown_and_split_words_are_marked_in_the_sentences(model):
    text = succeed("compare", "bank", "the bank 🍕 embeddings", "a 🍕 bank", "--model", model, env=UNICODE).decode()
    assert "  A  the [bank] 🍕† embeddings‡\n" in text and "  B  a 🍕† [bank]\n" in text
    assert "† not in the vocabulary: the model sees [UNK]" in text and "‡ split into pieces" in text
    # The warning is not truncated.
    assert "…" not in text and "the model may not know this language." in " ".join(text.split())
    assert "  A  the [🍕†]" in succeed("compare", "🍕", "the 🍕", "a 🍕", "--model", model, env=UNICODE).decode()


def test_full_output_marks_and_numbers_words(model):
    text = succeed("explain", "the bank of the 🍕 embeddings", "--query", "the#1", "--full", "--model", model, env=UNICODE).decode()
    account = text[text.index("0  “the#1” enters as word + position + type"):]
    rows = [line.split()[0] for line in account[account.index("the softmax of the row of “the#1”"):].splitlines()[2:11]]
    assert rows[:7] == ["token", "[CLS]", "the#0", "bank", "of", "the#1", "🍕†"] and rows[7].endswith("‡")


def test_heads_count_words_that_are_not_in_the_vocabulary(model):
    def note(text):
        return " ".join(succeed("heads", text, "--model", model, env=UNICODE).decode().split()).split("Note: ")[1]

    assert note("he 🍕 embeddings") == ("1 word is split into pieces, 1 is unknown: the model sees [UNK]; 1 of 1 text has many "
                                        "words outside the vocabulary: the model may not know the language.")
    assert note("he 🍕 sat 🍕").startswith("0 words are split into pieces, 2 are unknown")
