// SPDX-License-Identifier: Apache-2.0
//
// Processes character by character, and holds back only combining characters, until the next starter shows that their
// order is final.
// Read next: tokenizer.cpp.
#include "bert_normalizer.h"

#include <algorithm>
#include <tuple>

namespace regard::inline v0 {
namespace {

class Writer {
 public:
  Writer(const BertNormalizer& rules, NormalizedText& to) : rules_(rules), to_(to) {}

  void add(char32_t code, Origin origin) {
    if (code < 0x80) {
      end_run();
      write_ascii(code, origin);
    } else if (rules_.handle_chinese_chars && is_ideograph(code)) {
      // The inserted spaces do not come from the text.
      end_run();
      write_byte(' ', {origin.begin, origin.begin});
      add_decomposed(code, origin);
      end_run();
      write_byte(' ', {origin.end, origin.end});
    } else {
      add_decomposed(code, origin);
    }
  }

  void end_run() {
    if (run_.empty()) return;
    std::sort(run_.begin(), run_.end(), [](const Combining& a, const Combining& b) {
      return std::tie(a.combining_class, a.index) < std::tie(b.combining_class, b.index);
    });
    for (const Combining& c : run_) write(c.code, c.origin);
    run_.clear();
  }

 private:
  struct Combining {
    int combining_class;
    std::size_t index;
    char32_t code;
    Origin origin;
  };

  void add_decomposed(char32_t code, Origin origin) {
    if (!rules_.strip_accents) {
      write(code, origin);
      return;
    }
    const Characters parts = decompose(code);
    for (int i = 0; i < parts.count; ++i) {
      const char32_t part = parts.codes[i];
      const int order = combining_class(part);
      if (order == 0) end_run();
      if (is_accent(part)) {
        widen_last(origin.end);
      } else if (order == 0) {
        write(part, origin);
      } else {
        run_.push_back({order, run_.size(), part, origin});
      }
    }
  }

  void widen_last(std::uint32_t end) {
    if (!run_.empty()) {
      run_.back().origin.end = end;
      return;
    }
    for (std::size_t i = last_begin_; i < last_end_; ++i) to_.origin[i].end = end;
  }

  void write(char32_t code, Origin origin) {
    if (code < 0x80) {
      write_ascii(code, origin);
      return;
    }
    last_begin_ = to_.bytes.size();
    const Characters lower = rules_.lowercase ? to_lower(code) : Characters{{code}, 1};
    for (int i = 0; i < lower.count; ++i) append_utf8(to_.bytes, lower.codes[i]);
    last_end_ = to_.bytes.size();
    to_.origin.resize(last_end_, origin);
  }
  void write_ascii(char32_t code, Origin origin) {
    last_begin_ = to_.bytes.size();
    last_end_ = last_begin_ + 1;
    const bool is_capital = rules_.lowercase && code >= 'A' && code <= 'Z';
    write_byte(static_cast<char>(is_capital ? code + ('a' - 'A') : code), origin);
  }
  void write_byte(char byte, Origin origin) {
    to_.bytes += byte;
    to_.origin.push_back(origin);
  }

  const BertNormalizer& rules_;
  NormalizedText& to_;
  std::vector<Combining> run_;
  std::size_t last_begin_ = 0;  // the beginning of the last character that came from the text
  std::size_t last_end_ = 0;
};

}  // namespace

void BertNormalizer::normalize(std::string_view text, std::size_t offset, NormalizedText& to,
                               const std::stop_token& stop) const {
  to.bytes.clear();
  to.origin.clear();
  Writer writer(*this, to);
  for (std::size_t i = 0; i < text.size();) {
    throw_if_stopped(stop, "Tokenizer::encode");
    const auto [code, num_bytes] = first_character(text.substr(i));
    const Origin origin{static_cast<std::uint32_t>(offset + i), static_cast<std::uint32_t>(offset + i + num_bytes)};
    i += num_bytes;
    if (clean_text && is_control(code)) continue;
    writer.add(clean_text && is_space(code) ? U' ' : code, origin);
  }
  writer.end_run();
}

}  // namespace regard::inline v0
