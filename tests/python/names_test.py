# SPDX-License-Identifier: Apache-2.0
"""Every function and class of the public C++ headers exists in Python, or is listed here with a reason why not."""

import pathlib
import re

import pytest
import regard
import regard.distributed

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include" / "regard"
HEADER_NAMES = {path.relative_to(HEADERS).as_posix() for path in HEADERS.rglob("*.h")}

# Headers whose names are not needed in Python: a larger object contains them, or Python already has an equivalent.
PARTS = {
    **dict.fromkeys(("attention_backward_continued.h", "convert.h", "random.h",
                     "train/gradient_chain.h"), "in C++ only so far"),
    **dict.fromkeys(("train/batch_source.h", "train/checkpoint.h", "train/decoder_training.h", "train/probe.h", "train/record.h",
                     "train/settings.h", "train/trainer.h", "train/watched_run.h"), "the parts of a run, which regard.train does"),
    "explain/training_report.h": "Training: text, html, svg and findings",
    "model/decoder_inference.h": "TrainedModel and Model",
    "model/generate.h": "TrainedModel.generate",
    "model/trace.h": "the intermediate results that explain shows",
    "train/patterns.h": "Training.snapshots has the scores; those of other weights are sums of elements",
    "train/text_data.h": "regard.train(text=…)",
    "train/trained_model.h": "load_model",
    "train/vocabulary.h": "TrainedModel.encode and decode",
    "c_api.h": "the same library for C",
    "distributed/cost.h": "regard plan",
    "distributed/shards.h": "in C++ only so far",
    "error.h": "ValueError, RuntimeError and MemoryError, by the standard C++ type; Ctrl-C raises KeyboardInterrupt",
    "explain/attention_html.h": "regard attend --html; in Python regard.show",
    "explain/heads.h": "regard heads, a survey of a model over texts; only in the program so far",
    "explain/inspection_report.h": "the report of regard attend --inspect; in Python attention_with_statistics returns its values",
    "explain/live_html.h": "regard live; only in the program so far",
    "explain/random.h": "NumPy's and PyTorch's generators, for lessons that quote them",
    "explain/rounding_errors.h": "figures of docs/reference/model.md, for pages",
    "explain/sentence_row.h": "the contents of a SentenceAnalysis",
    "export.h": "macros only",
    "io/csv.h": "NumPy reads CSV",
    "io/json.h": "Python reads JSON",
    "io/json_fields.h": "checks of members of JSON objects",
    "io/json_writer.h": "Python writes JSON",
    "io/npy.h": "NumPy reads NPY",
    "io/output_file.h": "Python writes files",
    "io/rounding.h": "makes the models that the program calls minilm-int8 and minilm-f16",
    "io/safetensors.h": "the files that load_model reads",
    "io/safetensors_writer.h": "Python has the package safetensors",
    "io/sha256.h": "Python has hashlib",
    "io/utf8.h": "for renderers",
    "model/decoder.h": "the description of a decoder, which training takes as settings",
    "model/encoder.h": "the forward pass that explain, compare and embed run",
    "model/tokenizer.h": "Model.tokens",
    "types.h": "element types, which array libraries define",
}
# C++ name: the equivalent in Python as an expression, or None if there is none.
ELSEWHERE = {
    "check_is_encoder": None,                              # Model functions check this themselves
    "read_sentence_model": None,                           # Python reads folders
    "rounded_model": None,
    "read_text_file": None,                                # Python reads files
    **dict.fromkeys(("page_data", "sentence_page_data")),  # the data of the live page, which calls the core itself
    "attention_with_weights": "regard.attention_forward",  # return_weights=True
    "find_task": None,                                     # regard.train finds it
    "Ranks": "regard.distributed.connect",                 # kept for each communicator
    "Transport": None,                                     # the package has those of mpi4py and torch.distributed
    "exchange_numbers": None,                              # calls exchange the numbers that they need themselves
    "throw_if_stopped": None,                              # Ctrl-C stops calls
    "parallel_for": None,                                  # runs functions of C++ on the library's threads
    "version": "regard.__version__",
    "embed_tokens": "regard.embed",
    "compare_word": "regard.compare",
    "compare_findings": "regard.Comparison.findings",
    "render_compare_text": "regard.Comparison.text",
    "render_compare_json": "regard.Comparison.json",
    "render_compare_html": "regard.Comparison.html",
    "render_text": "regard.Explanation.text",
    "render_text_pages": "regard.Explanation.text",
    "render_json": "regard.Explanation.json",
    "render_html": "regard.Explanation.html",
    "render_sentence_text": "regard.SentenceAnalysis.text",
    "render_sentence_json": "regard.SentenceAnalysis.json",
    "render_sentence_html": "regard.SentenceAnalysis.html",
    "analyze_sentence": "regard.explain",                     # with model=
    "read_explain_input": "regard.explain",
    "load_sentence_model": "regard.load_model",
    "fitted_tokens": "regard.Model.tokens",
    "lesson_input": "regard.lesson",
    "with_layout": "regard.lesson",                        # layout=
    # Parts of regard.train.
    **dict.fromkeys(("initialize", "muon_scratch_size", "optimizer_scratch_size", "optimizer_step")),
    # Parts of explanations and sentences, and parsers of their settings.
    **dict.fromkeys(("matrix_of", "standard_steps", "query_tokens", "token_index", "expand_cell", "write_explain_input",
                     "parse_scale", "parse_causal", "parse_layout", "with_compared_settings", "sentence_details",
                     "read_sentence", "word_index", "word_weights", "word_vector", "cosine", "word_names", "word_mark",
                     "word_attention", "check_has_words", "vocabulary_warning", "pair_in_heads", "sentence_findings",
                     "operation_name", "operation_named")),
}


def exported(header):
    """The names of the functions and classes that a header exports."""
    text = re.sub(r"//[^\n]*", "", (HEADERS / header).read_text(encoding="utf-8"))
    functions = re.findall(r"^REGARD_EXPORT [^;{}()]*?\b(\w+)\s*\(", text, re.MULTILINE)
    return set(functions) | set(re.findall(r"^(?:class|struct) REGARD_EXPORT (\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("header", sorted(HEADER_NAMES - set(PARTS)))
def test_every_name_of_a_header_is_in_the_package(header):
    package = regard.distributed if header.startswith("distributed/") else regard
    for name in exported(header):
        assert hasattr(package, name) != (name in ELSEWHERE), f"{header} exports {name}"
        if ELSEWHERE.get(name):
            assert eval(ELSEWHERE[name]), name


def test_no_exception_is_stale():
    assert set(PARTS) <= HEADER_NAMES
    names = set.union(*map(exported, HEADER_NAMES - set(PARTS)))
    assert set(ELSEWHERE) <= names, set(ELSEWHERE) - names
    assert {"attention_forward", "attention_backward", "KvCache", "linear_forward", "plan", "explain", "throw_if_stopped"} <= names
