# SPDX-License-Identifier: Apache-2.0
"""Writes tests/tokenizer/texts.json: varied texts, and the results of Hugging Face's tokenizer.

    python make_texts.py FOLDER      FOLDER: all-MiniLM-L6-v2 (tokenizer.json, vocab.txt); needs transformers 5

Each entry is {"text", "times" (repetitions, if not 1), "ids", "word", "place"}; long ones have "count" and "hash"
(FNV-1a over the ids) in place of the lists. word and place are Regard's: word -1 and place 0 0 for [CLS] and [SEP];
bytes in place of characters; and accents belong to their base letter, where Hugging Face omits them.
place is missing if canonical ordering moves characters: Hugging Face's places do not move, Regard's do.
Read next: tests/tokenizer_test.cpp.
"""

import json
import pathlib
import random
import sys

from tokenizers import Tokenizer, normalizers
from transformers import BertTokenizerFast

HERE = pathlib.Path(__file__).resolve().parent
LONGEST_LISTED = 150

ENGLISH = [
    "", " ", "\t\n\r ", "a", "A", "he sat on the bank of the river", "She put her money in the bank.",
    "They walked along the river bank at dawn", "I love coding", "Don't stop; it's John's & Mary's!",
    "unaffable embeddings, antidisestablishmentarianism, supercalifragilisticexpialidocious", "HELLO WORLD", "hElLo",
    "e-mail, co-op, twenty-one", "U.S.A. vs. U.K.", "What?! No... really?!?", "(round) [square] {curly} <angle>",
    "3.14159 2,718,281 1e-10 0x7f 50% #1 $9.99 10^6", "first\nsecond\r\nthird\tfourth\x0bfifth\x0cfinal",
    "two  spaces   three    four", " leading", "trailing ", "snake_case CamelCase kebab-case SCREAMING_SNAKE",
    "quotes 'single' \"double\" `back`", "a+b=c; x<y>z|w&v^u~t", "@user #hashtag http://t.co/x",
    "https://example.org:8080/a/b.html?q=1&r=%20two#frag", "ftp://user:pass@host/~dir/file.tar.gz", "C:\\Users\\me",
    "name@mail.example.com", "192.168.0.1 ::1 fe80::1%eth0", "2024-02-29T23:59:59Z", "12:30 p.m.", "1st 2nd 3rd 4th",
    "aaaaaaaaaa bbbbbbbbbb", "xyzzy plugh qwertyuiop asdfghjkl", "ab" * 30, "the the the the", "?", "!!!", "...",
    "[MASK]", "[CLS] hello [SEP]", "The [MASK] sat on the [MASK].", "[mask] [Mask] [MASK ] [ MASK] [MASK]]", "x[MASK]y",
    "[MASK][MASK]", "[UNK] [PAD]", "[UNK", "[[CLS]]", "[MASK]\u0301", "\u0301[MASK]", "[unused0] [unused1]", "##ing ##",
    "lone ## here", "a" * 99, "a" * 100, "a" * 101, "a" * 102, "\u00e9" * 100, "\u00e9" * 101, "e\u0301" * 100,
    "e\u0301" * 101, "\uac00" * 50, "\uac00" * 51, "z" * 100 + " ok", "z" * 101 + " ok", "-" * 120,
]
CODE = [
    "int main(void) { return 0; }", "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }",
    "def f(x):\n    return x ** 2  # square", "SELECT * FROM t WHERE id = 1; -- comment",
    "<div class=\"a\">&nbsp;</div>", "printf(\"%d\\n\", x);", "let y = |a| a?.b ?? c;", "$ git commit -m 'fix #12'",
    "\\frac{1}{\\sqrt{d_k}} QK^T", "{\"key\": [1, 2.5e3, null, true]}", "std::vector<std::array<int, 2>> v{};",
    "rm -rf /tmp/*.o && make -j2",
]
LANGUAGES = [
    "Gr\xfc\xdfe aus K\xf6ln, stra\xdfe STRASSE \u1e9e", "d\xe9j\xe0 vu, na\xefve fa\xe7ade, \u0153uvre \xc6sir",
    "de\u0301ja\u0300 vu, nai\u0308ve fac\u0327ade", "El ni\xf1o comi\xf3 pi\xf1a \xbfverdad? \xa1s\xed!",
    "S\xe3o Paulo, a\xe7\xe3o, av\xf4", "\xc5ngstr\xf6m \u212b A\u030a",
    "Dvo\u0159\xe1k \u017elu\u0165ou\u010dk\xfd k\u016f\u0148",
    "\u0141\xf3d\u017a za\u017c\xf3\u0142\u0107 g\u0119\u015bl\u0105 ja\u017a\u0144",
    "\u0130stanbul I\u011fd\u0131r \u0131\u015f\u0131k", "i\u0307 I\u0307 \u0130 \u0131 I i",
    "Ti\u1ebfng Vi\u1ec7t c\xf3 d\u1ea5u", "Tie\u0302\u0301ng Vie\u0323\u0302t co\u0301 da\u0302\u0301u",
    "\xdeorn \xf0a\xf0 \xe6r", "Fr\xf8ya p\xe5 \xf8ya",
    "\u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03b5",
    "\u039f\u0394\u03a5\u03a3\u03a3\u0395\u03a5\u03a3 \u03bf\u03b4\u03cc\u03c2 \u03a3 \u03c3 \u03c2",
    "\u1f08\u03c1\u03c7\u1fc7 \u1f26\u03bd \u1f41 \u03bb\u03cc\u03b3\u03bf\u03c2\u037e \u0387",
    "\u1fbc \u1fcc \u1ffc \u1f82 \u1fd3 \u0390",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0401\u043b\u043a\u0430 \u0439\u043e\u0434",
    "\u0418\u0306\u043e\u0434 \u0435\u0308\u043b\u043a\u0430",
    "\u041a\u0438\u0457\u0432 \u0491\u0430\u043d\u043e\u043a \u0454",
    "\u0421\u0440\u0431\u0438\u0458\u0430 \u0459\u0443\u0431\u0430\u0432 \u045f\u0435\u043f",
    "\u0562\u0561\u0580\u0587 \u0531\u0577\u056d\u0561\u0580\u0570\u0589",
    "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0 \u10a0\u10d0 \u1c90",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd \u05e2\u05d5\u05dc\u05dd \u05be \u05f3",
    "\u202bshalom \u05e9\u05dc\u05d5\u05dd\u202c mixed \u200fRTL",
    "\u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645\u060c \u061f",
    "\u0641\u0627\u0631\u0633\u06cc \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u06f1\u06f2\u06f3",
    "\u0627\u0631\u062f\u0648 \u06d4 \u0679 \u0688",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0964 \u0958",
    "\u09ac\u09be\u0982\u09b2\u09be \u09ad\u09be\u09b7\u09be \u09cb \u09dc",
    "\u0ba4\u0bae\u0bbf\u0bb4\u0bcd \u0bae\u0bca\u0bb4\u0bbf", "\u0c24\u0c46\u0c32\u0c41\u0c17\u0c41 \u0c3c \u0c77",
    "\u0c95\u0ca8\u0ccd\u0ca8\u0ca1 \u0cca \u0c84", "\u0d2e\u0d32\u0d2f\u0d3e\u0d33\u0d02 \u0d3b",
    "\u0dc3\u0dd2\u0d82\u0dc4\u0dbd \u0ddc",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 \u0e5a",
    "\u0ea5\u0eb2\u0ea7 \u0eba\u0e9a", "\u1019\u103c\u1014\u103a\u1019\u102c \u104a \u1026",
    "\u1797\u17b6\u179f\u17b6\u1781\u17d2\u1798\u17c2\u179a \u17d4",
    "\u0f56\u0f7c\u0f51\u0f0b\u0f66\u0f90\u0f51\u0f0d \u0f43 \u0f73", "\u1820\u1828\u1820 \u180e \u1806",
    "\u12a0\u121b\u122d\u129b \u1361 \u1362", "\u4f60\u597d\uff0c\u4e16\u754c\uff01",
    "\u6211\u7231\u5317\u4eac\u5929\u5b89\u95e8 and English \u6df7\u5408",
    "\u6771\u4eac\u3067\u4f1a\u3044\u307e\u3057\u3087\u3046\u3002",
    "\u30ab\u30bf\u30ab\u30ca \u304b\u3099 \u30d1 \u30cf\u309a \u309b", "\uff8a\uff9f\uff70\uff83\uff68\uff70 \uff66",
    "\u3072\u3089\u304c\u306a\u300c\u62ec\u5f27\u300d\u30fb\u4e2d\u70b9",
    "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8 \uc548\ub155\ud558\uc138\uc694", "\u1112\u1161\u11ab\u1100\u116e\u11a8",
    "\u3131\u3132 \uac01 \ud7a3 \u302e \u302f",
    "\u3400\u4dbf\u4dc0 \u9fff\ua000 \uf900 \ufa0e \U00020000 \U0002a6df \U0002b740 \U0002b81f \U0002b820"
    " \U0002b920 \U0002f800 \U00030000",
    "\uff28\uff45\uff4c\uff4c\uff4f \uff11\uff12\uff13 \uff01\uff1f\u3000\uff3b\uff2d\uff21\uff33\uff2b\uff3d",
    "\u1200 \u13a0\u13ef \uab70 \u13f8", "\U00010400\U00010428 \U0001e900\U0001e944 \U000104b0",
    "\U00010330\U00010331 \U00012000 \U00013000",
]
SYMBOLS = [
    "\U0001f600\U0001f44d\U0001f3fd hi \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\u2764\ufe0f \u2764 \u263a\ufe0e", "\U0001f1e9\U0001f1ea flags \U0001f3f4\U000e0067\U000e0062\U000e007f",
    "1\ufe0f\u20e3 #\u20e3", "\ufb01ne e\ufb03cient \ufb05 \ufb06 \u01c4 \u01c5 \u01c6",
    "\xbd \xb2 \u2122 \u2460 \u2167 \u3392 \u33a1",
    "\u2018curly\u2019 \u201cdouble\u201d \xabguillemets\xbb \u2039x\u203a",
    "en\u2013dash em\u2014dash \u2026 \u2010 \u2212", "\u20ac5 \xa35 \xa55 \u20bf1 \u20b9",
    "\u2200x\u2208\u211d: \u2211x\xb2\u2264\u221e \u226e \u2260 =\u0338",
    "\u2190\u2191\u2192\u2193 \u2500\u2502\u250c \u2588\u2591",
    "\xa7 \xb6 \u2020 \u2021 \u2022 \xb7 \u203b \u2e2e \u2e43", "zero\u200bwidth\u200cnon\u200djoin\u2060er\ufeffbom",
    "soft\xadhyphen", "no\xa0break\u202fnarrow\u2009thin\u3000wide\u1680ogham\u2028line\u2029para\x85nel",
    "a\x00b\x01c\x1bd\x7fe\x80f\x9f", "\x1b[31mred\x1b[0m", "\u202eoverride\u202c \u2066iso\u2069",
    "rep\ufffdlace \ufffd alone", "\ue000private\uf8ff \U000f0000", "\ufdd0non\uffff \U0010ffff \u0378 \U000e0fff",
    "\u0301\u0302\u0303", " \u0301 ", "\u0301abc", "a\u0301\u0302\u0303\u0304b", "a\u0315\u0300\u05ae\u0300b",
    "x\u0334\u0338y", "!\u0301?\u0301", "\u20dd a\u20dd \u20e0", "\U0001d15e \U0001d157\U0001d165 \U0001d16e\U0001d165",
    "a\u302f\u302e\u0334\u302e", "\u0f71\u0f72\u0f74 \u0f77 \u0f79", "\u1734 \u1714 \u1715 \u166d \U000111c9",
    "\u07fd \u08ca\u08cb \u0898 \u0890", "\U00011938 \U00011935\U00011930 \U0001109a \U0001112e",
    "\u212a\u212b \u2126 \u017f \u1e9b\u0323", "\ua7ae \ua7dc \u1c89 \u10a0 \u1c90 \U00010d50",
    "\u01c5 \u1f88 \u1fb3 \u0345", "\U0001d400\U0001d7ff \u2100 \u3300", "\u2000\u2001\u2002\u2003",
    "\u037e\u1fef\xb4\u2474", "\u115f\u1160\u3164\uffa0", "\u034f \u061c \u180e \u180b",
    "\u2ff0 \u2e80 \u2f00 \u31c0 \u3021 \u3007", "\u3099\u309a \u3042\u3099", "\u4e2d\u0301\u6587",
    "\u0e33 \u0eb3 \u0f0c",
]
REPEATED = [
    ("the quick brown fox jumps over the lazy dog " * 10 + "who slept at noon, under a tree " * 2, 100),
    ("A", 1_000_000), ("Z", 130_000),
    ("\u4e2d\u6587", 13_000), (" ", 10_000_000), ("\u0301", 1_000_000), ("e\u0301", 100_000), ("\x00", 1_000_000),
    ("ab\u0301\u0327 ", 50_000), ("\u302f\u302e", 200_000), ("[MASK]", 20_000), ("[MASK", 50_000), ("\ud55c ", 20_000),
    ("a.", 100_000), ("##", 50_000), ("\u1f82", 50_000), ("in" * 50 + " ", 3_000),
]


def random_texts(count):
    """Words and characters of all kinds that the rules distinguish, in random order."""
    chosen = random.Random(20240607)
    pieces = [word for text in ENGLISH + CODE + LANGUAGES + SYMBOLS if len(text) < 80 for word in text.split()]
    blocks = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x590, 0x8FF), (0x900, 0xDFF),
              (0xE00, 0x1FFF), (0x2000, 0x2BFF), (0x2E00, 0x30FF), (0x3400, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7A3),
              (0xF900, 0xFFFF), (0x10000, 0x11FFF), (0x16A00, 0x16FFF), (0x1D000, 0x1E9FF), (0x1F300, 0x1FAFF)]
    for _ in range(count):
        text = ""
        for _ in range(chosen.randint(1, 14)):
            kind = chosen.random()
            if kind < 0.5:
                text += chosen.choice(pieces)
            elif kind < 0.9:
                first, last = chosen.choice(blocks)
                text += "".join(chr(chosen.randint(first, last)) for _ in range(chosen.randint(1, 4)))
            else:
                text += "".join(chr(chosen.choice([0x300, 0x315, 0x327, 0x334, 0x345, 0x302E, 0x3099, 0x1D165, 0x64B]))
                                for _ in range(chosen.randint(1, 4)))
            text += chosen.choice(["", " ", " ", "  ", "\u200d", "-", "\n"])
        yield text


def fnv(numbers):
    value = 0xCBF29CE484222325
    for number in numbers:
        value = (value ^ number) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def removes(character, strip_accents):
    return normalizers.BertNormalizer(lowercase=False, strip_accents=strip_accents).normalize_str(character) == ""


def entry(text, times, fast, raw):
    found = fast(text * times, return_offsets_mapping=True)
    ids = found["input_ids"]
    if ids != raw.encode(text * times).ids:
        raise SystemExit(f"transformers and tokenizers differ on {text!r}")
    made = {"text": text} | ({} if times == 1 else {"times": times})
    if len(ids) > LONGEST_LISTED:
        return made | {"count": len(ids), "hash": fnv(ids)}
    whole = text * times
    starts = [0]
    for character in whole:
        starts.append(starts[-1] + len(character.encode("utf-8", "surrogatepass")))
    added = {token.content for token in fast.added_tokens_decoder.values()}
    control = {c for c in whole if removes(c, strip_accents=False)}
    accents = {c for c in whole if removes(c, strip_accents=True)} - control
    words, places, seen = [], [], {}
    for word, (begin, end) in zip(found.word_ids(), found["offset_mapping"]):
        if word is None and begin == end:
            words.append(-1)
            places += [0, 0]
            continue
        words.append(seen.setdefault((word, begin) if word is None else word, len(seen)))
        # Skips removed characters, as far as accents extend; [MASK] has none.
        at = len(whole) if whole[begin:end] in added else end
        while at < len(whole) and whole[at] in accents | control:
            at += 1
            end = at if whole[at - 1] in accents else end
        places += [starts[begin], starts[end]]
    made |= {"ids": ids, "word": words}
    decompose = normalizers.NFD().normalize_str
    is_reordered = decompose(whole) != "".join(decompose(character) for character in whole)
    return made if is_reordered else made | {"place": places}


def main():
    folder = pathlib.Path(sys.argv[1])
    fast = BertTokenizerFast.from_pretrained(folder)
    fast.backend_tokenizer.no_truncation()
    fast.backend_tokenizer.no_padding()
    raw = Tokenizer.from_file(str(folder / "tokenizer.json"))
    raw.no_truncation()
    raw.no_padding()
    texts = ENGLISH + CODE + LANGUAGES + SYMBOLS
    texts += random_texts(320 - len(texts))
    entries = [entry(text, 1, fast, raw) for text in texts] + [entry(*pair, fast, raw) for pair in REPEATED]
    lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
    (HERE / "texts.json").write_text("[\n" + lines + "\n]\n")
    print(len(entries), "texts")


if __name__ == "__main__":
    main()
