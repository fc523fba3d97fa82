// SPDX-License-Identifier: Apache-2.0
//
// embed_tokens: texts embedded together have the bits of each text alone, in any order and combination, on every
// instruction set and number of threads.
// Read next: regard/model/embed.h, cli/model_embed_check.py.
#include "regard/model/embed.h"

#include <algorithm>
#include <stop_token>

#include "support/arrays.h"
#include "support/data_path.h"
#include "support/encoder_reference.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"

namespace regard::embed_test {
namespace {

using Texts = std::vector<std::vector<Index>>;

const Encoder& tiny() {
  static const Encoder encoder = load_encoder(data_path("encoder/tiny"));
  return encoder;
}

// Lengths from 0 to the number of positions of the model.
Texts random_texts(int count, std::uint64_t seed) {
  Random random(seed);
  Texts texts;
  for (int n = 0; n < count; ++n) {
    const Index max_length = n % 5 == 0 ? tiny().config.max_positions : 12;
    std::vector<Index> ids(static_cast<std::size_t>(n % 7 == 3 ? 0 : random.integer(1, max_length)));
    for (Index& id : ids) id = random.integer(0, tiny().config.vocabulary - 1);
    texts.push_back(ids);
  }
  texts.push_back(std::vector<Index>(static_cast<std::size_t>(tiny().config.max_positions), 1));
  return texts;
}

std::vector<float> row(const Tensor<float, 2>& vectors, std::size_t index) {
  const auto width = static_cast<std::size_t>(vectors.shape()[1]);
  return {vectors.data() + index * width, vectors.data() + (index + 1) * width};
}

TEST(EmbedTokens, EachTextMatchesASeparateCall) {
  const Texts texts = random_texts(70, 20270301);
  std::vector<std::uint64_t> fused;
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    const Tensor<float, 2> vectors = embed_tokens(tiny(), texts);
    ASSERT_EQ(vectors.shape(), (std::array<Index, 2>{static_cast<Index>(texts.size()), tiny().config.width}));
    for (std::size_t n = 0; n < texts.size(); ++n) {
      EXPECT_EQ(bits_of(row(vectors, n)), bits_of(mean_pooled_normalized(encode(tiny(), texts[n])))) << n;
    }
    if (!table.fused_multiply_add) return;
    const std::vector<std::uint64_t> bits =
        bits_of(std::vector<float>(elements(vectors).begin(), elements(vectors).end()));
    if (fused.empty()) fused = bits;
    EXPECT_TRUE(fused == bits);
  });
}

TEST(EmbedTokens, MoreTokensThanFitInAGroupInAnyOrder) {
  Texts texts = random_texts(900, 20270302);
  Index tokens = 0;
  for (const auto& ids : texts) tokens += static_cast<Index>(ids.size());
  ASSERT_GT(tokens, 3 * 2048);
  const Tensor<float, 2> vectors = embed_tokens(tiny(), texts);
  std::reverse(texts.begin(), texts.end());
  const Tensor<float, 2> reversed = embed_tokens(tiny(), texts, {.num_threads = 3});
  for (std::size_t n = 0; n < texts.size(); ++n) {
    EXPECT_EQ(bits_of(row(reversed, n)), bits_of(row(vectors, texts.size() - 1 - n)));
  }
}

TEST(EmbedTokens, VectorsHaveNormOneAndEmptyTextsGiveZeros) {
  const Texts texts{{1, 2, 3}, {}, {5}};
  const Tensor<float, 2> vectors = embed_tokens(tiny(), texts);
  for (const std::size_t n : {0u, 2u}) {
    double square = 0;
    for (const float x : row(vectors, n)) square += static_cast<double>(x) * static_cast<double>(x);
    EXPECT_NEAR(square, 1, 1e-6);
  }
  EXPECT_EQ(row(vectors, 1), std::vector<float>(static_cast<std::size_t>(tiny().config.width)));
  EXPECT_EQ(row(embed_tokens(tiny(), Texts{{}, {}}), 1), row(vectors, 1));
  EXPECT_EQ(embed_tokens(tiny(), {}).size(), 0);
}

TEST(EmbedTokens, RejectsInvalidIdsAndLengthsBeforeAnyWork) {
  const Index V = tiny().config.vocabulary;
  const Index P = tiny().config.max_positions;
  EXPECT_EQ(rejection([&] { embed_tokens(tiny(), Texts{{1}, {2, V}}); }),
            "embed_tokens: text 1: token 1 has id " + std::to_string(V) + "; expected 0 to " + std::to_string(V - 1));
  EXPECT_EQ(
      rejection([&] { embed_tokens(tiny(), Texts{std::vector<Index>(static_cast<std::size_t>(P + 1))}); }),
      "embed_tokens: text 0: " + std::to_string(P + 1) + " tokens; this model has " + std::to_string(P) + " positions");
}

TEST(EmbedTokens, StopsOnRequest) {
  std::stop_source source;
  source.request_stop();
  EXPECT_THROW(embed_tokens(tiny(), Texts{{1, 2}}, {.stop = source.get_token()}), Cancelled);
}

}  // namespace
}  // namespace regard::embed_test
