# SPDX-License-Identifier: Apache-2.0
"""The small BERT with random parameters in tests/encoder/tiny and a tokenizer of a few words, as a folder for --model.

tests/support/sentence_model.h creates the same in C++."""

import json
import pathlib
import shutil

VOCABULARY = ("[PAD] [UNK] [CLS] [SEP] [MASK] he sat on the bank of river she put her money in they walked along at "
              "dawn a is no . , # 0 em ##bed ##ding ##s < > / = script").split()
TINY = pathlib.Path(__file__).resolve().parents[1] / "encoder" / "tiny"


def tokenizer():
    """The contents of tokenizer.json, in BERT's format."""
    added = [{"id": number, "content": token, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False} for number, token in enumerate(VOCABULARY[:5])]
    template = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    special = {token: {"id": token, "ids": [VOCABULARY.index(token)], "tokens": [token]} for token in ("[CLS]", "[SEP]")}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                           "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": template, "pair": [], "special_tokens": special},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100,
                      "vocab": {token: number for number, token in enumerate(VOCABULARY)}}}


def make_folder(folder):
    """Writes the model into a folder that exists, and returns it."""
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(TINY / name, folder / name)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return folder
