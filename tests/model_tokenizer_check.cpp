// SPDX-License-Identifier: Apache-2.0
//
// The real tokenizer.json in the folder that REGARD_TEST_MODEL names: a few ids from transformers, independent of the
// padding and truncation settings of the file. All other texts are covered by tests/tokenizer_test.cpp.
// Read next: include/regard/model/tokenizer.h.
#include <gtest/gtest.h>

#include <cstdlib>

#include "regard/model/tokenizer.h"

namespace regard::model_tokenizer_check {
namespace {

TEST(ModelTokenizer, MatchesTransformers) {
  const char* folder = std::getenv("REGARD_TEST_MODEL");
  ASSERT_NE(folder, nullptr) << "REGARD_TEST_MODEL names no folder";
  const regard::Tokenizer tokenizer = regard::Tokenizer::read_folder(folder);
  EXPECT_EQ(tokenizer.vocabulary_size(), 30522);
  EXPECT_EQ(tokenizer.encode("he sat on the bank of the river").ids,
            (std::vector<Index>{101, 2002, 2938, 2006, 1996, 2924, 1997, 1996, 2314, 102}));
  EXPECT_EQ(tokenizer.encode("R\u00e9sum\u00e9: [MASK] embeddings \u4e2d!").ids,
            (std::vector<Index>{101, 13746, 1024, 103, 7861, 8270, 4667, 2015, 1746, 999, 102}));
  EXPECT_EQ(tokenizer.encode("").ids, (std::vector<Index>{101, 102}));
  std::string words;
  for (int i = 0; i < 1000; ++i) words += "river ";
  EXPECT_EQ(tokenizer.encode(words).ids.size(), 1002u);
}

}  // namespace
}  // namespace regard::model_tokenizer_check
