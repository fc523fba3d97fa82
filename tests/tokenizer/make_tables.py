# SPDX-License-Identifier: Apache-2.0
"""Compares the Unicode tables inside Hugging Face's tokenizers with utf8proc's, code point by code point, and writes

    src/model/tokenizer/bert_tables.h              where the two differ (run clang-format on it)
    tests/tokenizer/characters.txt       a hash per 4096 code points of the complete tokenizer's result for each

    python make_tables.py                needs the Python package tokenizers 0.23 and libutf8proc.so.2

BERT's normalizer in tokenizers takes categories from tables of Unicode 8, canonical order from Unicode 9, spaces, cases
and word characters from the Rust compiler's Unicode; utf8proc 2.8 has Unicode 15. Read next: tests/tokenizer_test.cpp.
"""

import ctypes
import json
import pathlib

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
TABLES = HERE.parent.parent / "src" / "model" / "bert_tables.h"
CHARACTERS = HERE / "characters.txt"
BLOCK = 4096
CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]

utf8proc = ctypes.CDLL("libutf8proc.so.2")
utf8proc.utf8proc_category_string.restype = ctypes.c_char_p
utf8proc.utf8proc_tolower.restype = ctypes.c_int32
utf8proc.utf8proc_get_property.restype = ctypes.c_void_p
utf8proc.utf8proc_unicode_version.restype = ctypes.c_char_p
DECOMPOSE = 1 << 4
ABOVE = "\u0334"  # combining class 1: moves before every class but its own and 0
BELOW = "\u0345"  # combining class 240, the highest


def bert(**on):
    flags = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**(flags | on)).normalize_str


def category(c):
    return utf8proc.utf8proc_category_string(c).decode()


def decomposed(c):
    buffer = (ctypes.c_int32 * 16)()
    length = utf8proc.utf8proc_decompose_char(c, buffer, 16, DECOMPOSE, None)
    return "".join(chr(x) for x in buffer[:length])


def is_reordered(c):
    """utf8proc: whether canonical ordering moves it."""
    struct = ctypes.cast(utf8proc.utf8proc_get_property(c), ctypes.POINTER(ctypes.c_uint16))
    return struct[1] != 0



def ranges(codes):
    found = []
    for c in codes:
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def table(name, comment, codes):
    rows = ", ".join(f"{{0x{first:04x}, 0x{last:04x}}}" for first, last in ranges(codes))
    return f"// {comment}\ninline constexpr CodeRange {name}[] = {{{rows}}};\n"


def write_tables():
    clean, accents, lower = bert(clean_text=True), bert(strip_accents=True), bert(lowercase=True)
    nfd = normalizers.NFD().normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    control, mark, not_mark, punctuation, not_punctuation, order, canonical, cases = ([] for _ in range(8))
    for c in CODES:
        s = chr(c)
        kept = clean(s) != ""
        if not kept and category(c) not in ("Cc", "Cf", "Co") and c != 0xFFFD:
            raise SystemExit(f"{c:x} is removed: write a table for it")
        if kept and category(c) in ("Cc", "Cf", "Co") and s not in "\t\n\r":
            control.append(c)
        theirs, ours = accents(s) == "", all(category(ord(x)) == "Mn" for x in decomposed(c))
        (mark if theirs else not_mark).extend([c] if theirs != ours else [])
        theirs = [word for word, _ in split("a" + s + "b")] == ["a", s, "b"]
        ours = category(c)[0] == "P" or s in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
        (punctuation if theirs else not_punctuation).extend([c] if theirs != ours else [])
        if nfd(s) != decomposed(c):
            canonical.append(c)
        elif nfd(s) == s and is_reordered(c):
            if nfd("a" + s + ABOVE) == "a" + s + ABOVE and nfd("a" + BELOW + s) == "a" + BELOW + s:
                order.append(c)
        if lower(s) != chr(utf8proc.utf8proc_tolower(c)) and c != 0x130:
            cases.append((c, ord(lower(s)) - c))
    rows = []
    for c, shift in cases:
        if rows and rows[-1][1] == c - 1 and rows[-1][2] == shift:
            rows[-1][1] = c
        else:
            rows.append([c, c, shift])
    cases_table = ", ".join(f"{{0x{first:04x}, 0x{last:04x}, {shift}}}" for first, last, shift in rows)
    version = utf8proc.utf8proc_unicode_version().decode()
    TABLES.write_text(f"""// SPDX-License-Identifier: Apache-2.0
//
// Where the Unicode tables behind Hugging Face's BERT tokenizer differ from utf8proc's (Unicode {version}): they are
// older in categories and canonical order, for which newer characters are plain letters, and newer in case mappings.
// Written by tests/tokenizer/make_tables.py.
// Read next: bert_characters.cpp.
#pragma once

namespace regard::inline v0 {{

struct CodeRange {{
  char32_t first;
  char32_t last;
}};
struct CaseRange {{
  char32_t first;
  char32_t last;
  int shift;  // to the lower-case letter
}};

""" + "\n".join([
        table("kNotControl", "Of category Cc, Cf or Co, but kept by clean_text.", control),
        table("kMark", "Stripped as accents, although not of category Mn.", mark),
        table("kNotMark", "Of category Mn, but not stripped.", not_mark),
        table("kNotReordered", "With a combining class, but not reordered.", order),
        table("kNotDecomposed", "With a canonical decomposition, but not decomposed.", canonical),
        table("kPunctuation", "Separate words, although not of category P.", punctuation),
        table("kNotPunctuation", "Of category P, but parts of words.", not_punctuation),
        f"// Letters with a lower case that utf8proc does not know.\ninline constexpr CaseRange kCases[] = "
        f"{{{cases_table}}};\n",
    ]) + """
}  // namespace regard::inline v0
""")


def vocabulary():
    """Every character that some character maps to, so that each mapping is visible in the ids."""
    plain, both = bert(strip_accents=True, lowercase=True), bert(lowercase=True)
    made = sorted({x for c in CODES for f in (plain, both) for x in f(chr(c)) if f(chr(c)) != chr(c)} | {"a", "b"})
    return ["[UNK]"] + made + ["##" + x for x in made]


def tokenizer(tokens, **on):
    flags = dict(clean_text=True, handle_chinese_chars=True, strip_accents=True, lowercase=True)
    made = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(**(flags | on))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def write_characters():
    """Line 1: the vocabulary. Then NAME and a hash per block: FNV-1a over each id and the word that it belongs to."""
    tokens = vocabulary()
    lines = [json.dumps(tokens)]
    for name, on in (("uncased", {}), ("cased", dict(strip_accents=False, lowercase=False)),
                     ("raw", dict(clean_text=False, strip_accents=False)),
                     ("accents", dict(clean_text=False, handle_chinese_chars=False, lowercase=False))):
        made = tokenizer(tokens, **on)
        lines.append(name + " " + " ".join(block_hash(made, first) for first in range(0, 0x110000, BLOCK)))
    CHARACTERS.write_text("\n".join(lines) + "\n")


def block_hash(made, first):
    text = " ".join(f"a{chr(c)}b" for c in range(first, first + BLOCK) if not 0xD800 <= c < 0xE000)
    found = made.encode(text)
    value = 0xCBF29CE484222325
    for number in (x for pair in zip(found.ids, found.word_ids) for x in pair):
        value = (value ^ number) * 0x100000001B3 % 2**64
    return f"{value:016x}"


if __name__ == "__main__":
    write_tables()
    write_characters()
