// SPDX-License-Identifier: Apache-2.0
#include "render_sentence.h"
namespace regard {
inline namespace v0 {
std::vector<std::string> sentence_work_lines(const StoryText&, const SentenceWork&) { return {}; }
}  // namespace v0
}  // namespace regard
