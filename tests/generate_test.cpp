// SPDX-License-Identifier: Apache-2.0
//
// Generation: sessions give the same bits however the tokens are divided into calls; sampling by hand-made logits;
// generated tokens depend on prompt, options and seed only.
// Read next: src/model/decoder/generate.cpp, sampling.cpp.
#include "regard/model/generate.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "regard/error.h"
#include "regard/random.h"
#include "support/arrays.h"
#include "support/decoder_cases.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"
#include "support/same_bits.h"

namespace regard::generate_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::uint64_t> bits(std::span<const float> logits) {
  return bits_of(std::vector<float>(logits.begin(), logits.end()));
}

std::vector<float> logits_row(const DecoderTrace& trace, Index row) {
  const Index vocabulary = trace.logits.shape()[1];
  return {trace.logits.data() + row * vocabulary, trace.logits.data() + (row + 1) * vocabulary};
}

// ---- sessions

TEST(DecoderSession, GivesTheBitsOfTheTraceForAnyDivisionIntoCalls) {
  constexpr Index kTokens = 300;  // more than a chunk of the prompt, and several blocks of keys
  for (const auto& [name, config] : decoder_cases(kTokens)) {
    SCOPED_TRACE(name);
    const Decoder decoder = tiny_decoder(config);
    const std::vector<Index> ids = some_ids(kTokens, config.vocabulary);
    on_every_instruction_set([&](const kernels::KernelTable&) {
      const DecoderTrace trace = decode_trace(decoder, ids);
      DecoderSession whole(decoder);
      EXPECT_TRUE(same_bits(bits(whole.append(ids)), bits(logits_row(trace, kTokens - 1))));
      DecoderSession session(decoder);
      const std::span<const Index> all(ids);
      for (const Index next : {1, 1, 1, 62, 1, 1, 30, 100, 1, 101, 1}) {
        const auto first = static_cast<std::size_t>(session.length());
        const auto logits = bits(session.append(all.subspan(first, static_cast<std::size_t>(next))));
        EXPECT_TRUE(same_bits(logits, bits(logits_row(trace, session.length() - 1)))) << session.length();
      }
      EXPECT_EQ(session.length(), kTokens);
    });
  }
}

TEST(DecoderSession, GivesTheSameBitsForAnyNumberOfThreads) {
  const auto [name, config] = decoder_cases(90)[2];
  const Decoder decoder = tiny_decoder(config);
  const std::vector<Index> ids = some_ids(90, config.vocabulary);
  DecoderSession one(decoder), five(decoder);
  EXPECT_TRUE(same_bits(bits(one.append(ids, {.num_threads = 1})), bits(five.append(ids, {.num_threads = 5}))));
}

TEST(DecoderSession, TruncateGoesBackToAnEarlierToken) {
  const Decoder decoder = tiny_decoder(decoder_cases(20)[2].second);
  const std::vector<Index> ids = some_ids(20, 13);
  DecoderSession session(decoder, 12);
  EXPECT_EQ(session.capacity(), 12);
  const auto expected = bits(session.append(std::span(ids).first(8)));
  session.append(std::span(ids).subspan(9, 4));
  session.truncate(7);
  EXPECT_EQ(session.length(), 7);
  EXPECT_TRUE(same_bits(bits(session.append(std::span(ids).subspan(7, 1))), expected));
  EXPECT_EQ(rejection([&] { session.truncate(9); }),
            "DecoderSession: length is 9; expected 0 to 8, the number of tokens");
}

TEST(DecoderSession, OutlivesTheDecoderItWasMadeFrom) {
  auto decoder = std::make_unique<Decoder>(tiny_decoder(decoder_cases(8)[0].second));
  const std::vector<Index> ids{1, 2, 3};
  const auto expected = bits(logits_row(decode_trace(*decoder, ids), 2));
  DecoderSession session(*decoder);
  decoder.reset();
  EXPECT_TRUE(same_bits(bits(session.append(ids)), expected));
}

TEST(DecoderSession, RejectedAndStoppedCallsChangeNothing) {
  const Decoder decoder = tiny_decoder(decoder_cases(8)[0].second);
  DecoderSession session(decoder, 6);
  session.append(std::vector<Index>{1, 2, 3});
  EXPECT_EQ(rejection([&] { session.append({}); }), "DecoderSession: there are no ids; expected at least one");
  EXPECT_EQ(rejection([&] { session.append(std::vector<Index>(4, 1)); }),
            "DecoderSession: 4 tokens after 3; expected at most 6 in total, the capacity");
  EXPECT_EQ(rejection([&] { session.append(std::vector<Index>{4, 13}); }),
            "DecoderSession: token 4 has id 13; expected 0 to 12");
  std::stop_source source;
  source.request_stop();
  EXPECT_THROW(session.append(std::vector<Index>{4}, {.stop = source.get_token()}), Cancelled);
  EXPECT_EQ(session.length(), 3);
  EXPECT_TRUE(same_bits(bits(session.append(std::vector<Index>{4})),
                        bits(logits_row(decode_trace(decoder, std::vector<Index>{1, 2, 3, 4}), 3))));
  EXPECT_EQ(rejection([&] { DecoderSession(decoder, 9); }),
            "DecoderSession: capacity is 9; expected 0 to max_positions, which is 8");
}

// ---- sampling

// How often each of the tokens 0 … 4 is drawn at the positions 0 … n − 1.
std::vector<double> shares(const std::vector<float>& logits, SamplingOptions options, Index n = 4000) {
  std::vector<double> counts(logits.size());
  for (Index position = 0; position < n; ++position)
    ++counts[static_cast<std::size_t>(sample_token(logits, options, position))];
  for (double& count : counts) count /= static_cast<double>(n);
  return counts;
}

void expect_shares(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t id = 0; id < found.size(); ++id) {
    // Five standard deviations of a share of 4,000 draws.
    const double bound = 5 * std::sqrt(expected[id] * (1 - expected[id]) / 4000);
    EXPECT_NEAR(found[id], expected[id], bound) << id;
  }
}

const float kLn2 = std::log(2.0f);
const std::vector<float> kLogits{0, 2 * kLn2, -kInfinity, kLn2, 0};  // probabilities 1/8, 4/8, 0, 2/8, 1/8

TEST(Sampling, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(sample_token(kLogits, {.temperature = 0}, 0), 1);
  EXPECT_EQ(sample_token(std::vector<float>{1, 3, 3, 2}, {.temperature = 0}, 5), 1);
  EXPECT_EQ(sample_token(std::vector<float>{-kInfinity, -kInfinity}, {}, 5), 0);
}

TEST(Sampling, DrawsFromTheSoftmaxOfTheLogits) {
  expect_shares(shares(kLogits, {}), {.125, .5, 0, .25, .125});
  expect_shares(shares(kLogits, {.temperature = .5}), {1 / 22.0, 16 / 22.0, 0, 4 / 22.0, 1 / 22.0});
  expect_shares(shares(kLogits, {.temperature = 2}), {1 / (4 + std::sqrt(2)), 2 / (4 + std::sqrt(2)), 0,
                                                      std::sqrt(2) / (4 + std::sqrt(2)), 1 / (4 + std::sqrt(2))});
}

TEST(Sampling, TopKKeepsTheLargestLogits) {
  expect_shares(shares(kLogits, {.top_k = 1}), {0, 1, 0, 0, 0});
  expect_shares(shares(kLogits, {.top_k = 2}), {0, 2 / 3.0, 0, 1 / 3.0, 0});
  expect_shares(shares(kLogits, {.top_k = 3}), {1 / 7.0, 4 / 7.0, 0, 2 / 7.0, 0});  // of equal ones the smaller id
  expect_shares(shares(kLogits, {.top_k = 99}), {.125, .5, 0, .25, .125});
}

TEST(Sampling, TopPKeepsTheSmallestSetThatReachesIt) {
  expect_shares(shares(kLogits, {.top_p = 1e-9}), {0, 1, 0, 0, 0});
  expect_shares(shares(kLogits, {.top_p = .49}), {0, 1, 0, 0, 0});
  expect_shares(shares(kLogits, {.top_p = .51}), {0, 2 / 3.0, 0, 1 / 3.0, 0});
  expect_shares(shares(kLogits, {.top_p = .76}), {1 / 7.0, 4 / 7.0, 0, 2 / 7.0, 0});
  // Of the two tokens that top_k keeps, the first has 2/3.
  expect_shares(shares(kLogits, {.top_k = 2, .top_p = .6}), {0, 1, 0, 0, 0});
  // At temperature 2, it has 2 of 4 + √2.
  expect_shares(shares(kLogits, {.temperature = 2, .top_p = .4}),
                {0, std::sqrt(2) / (1 + std::sqrt(2)), 0, 1 / (1 + std::sqrt(2)), 0});
}

TEST(Sampling, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(100, 0.0f);
  std::vector<Index> drawn, again, other_seed;
  for (Index position = 0; position < 50; ++position) {
    drawn.push_back(sample_token(logits, {.seed = 7}, position));
    other_seed.push_back(sample_token(logits, {.seed = 8}, position));
  }
  for (Index position = 50; position-- > 0;) again.push_back(sample_token(logits, {.seed = 7}, position));
  std::reverse(again.begin(), again.end());
  EXPECT_EQ(drawn, again);
  EXPECT_NE(drawn, other_seed);
  for (Index position = 0; position < 50; ++position) {
    const double u = random_uniform(7, kSamplingStream, static_cast<std::uint64_t>(position));
    EXPECT_EQ(drawn[static_cast<std::size_t>(position)], static_cast<Index>(100 * u));
  }
}

TEST(Sampling, RejectsLogitsAndOptionsOutOfRange) {
  EXPECT_EQ(rejection([] { sample_token({}, {}, 0); }), "sample_token: there are no logits; expected at least one");
  EXPECT_EQ(rejection([] { sample_token(std::vector<float>{0, kInfinity}, {}, 0); }),
            "sample_token: the logit of token 1 is inf; expected a finite number or -inf");
  EXPECT_EQ(rejection([] { sample_token(std::vector<float>{std::nanf("")}, {}, 0); }),
            "sample_token: the logit of token 0 is nan; expected a finite number or -inf");
  EXPECT_EQ(rejection([] { sample_token(kLogits, {}, -1); }), "sample_token: position is -1; expected at least 0");
  EXPECT_EQ(rejection([] { sample_token(kLogits, {.temperature = -1}, 0); }),
            "sampling: temperature is -1; expected a finite number of at least 0");
  EXPECT_EQ(rejection([] { sample_token(kLogits, {.top_k = -2}, 0); }),
            "sampling: top_k is -2; expected at least 0 (0 means all tokens)");
  for (const double p : {0.0, -1.0, 1.01, std::nan("")})
    EXPECT_NE(rejection([&] { sample_token(kLogits, {.top_p = p}, 0); }), "accepted") << p;
}

// ---- generate

TEST(Generate, GreedyTokensAreThoseOfTheLargestLogits) {
  for (const auto& [name, config] : decoder_cases(40)) {
    SCOPED_TRACE(name);
    const Decoder decoder = tiny_decoder(config);
    std::vector<Index> text{5, 1};
    const Generated generated = generate(decoder, text, {.max_tokens = 20, .sampling = {.temperature = 0}});
    ASSERT_EQ(generated.ids.size(), 20u);
    EXPECT_EQ(generated.end, GenerationEnd::tokens);
    text.insert(text.end(), generated.ids.begin(), generated.ids.end());
    const DecoderTrace trace = decode_trace(decoder, text);
    for (Index i = 1; i + 1 < static_cast<Index>(text.size()); ++i) {
      const std::vector<float> logits = logits_row(trace, i);
      EXPECT_EQ(text[static_cast<std::size_t>(i) + 1], std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
  }
}

TEST(Generate, DependsOnPromptOptionsAndSeedOnly) {
  const Decoder decoder = tiny_decoder(decoder_cases(64)[2].second);
  const std::vector<Index> prompt{3, 1, 4};
  const GenerateOptions options{.max_tokens = 40, .sampling = {.temperature = 3, .top_k = 9, .top_p = .95, .seed = 5}};
  const std::vector<Index> ids = generate(decoder, prompt, options, {.num_threads = 1}).ids;
  EXPECT_EQ(generate(decoder, prompt, options, {.num_threads = 5}).ids, ids);
  GenerateOptions other_seed = options;
  other_seed.sampling.seed = 6;
  EXPECT_NE(generate(decoder, prompt, other_seed).ids, ids);

  // From a longer prompt, the rest is the same.
  std::vector<Index> longer = prompt;
  longer.insert(longer.end(), ids.begin(), ids.begin() + 15);
  GenerateOptions fewer = options;
  fewer.max_tokens = 25;
  EXPECT_EQ(generate(decoder, longer, fewer).ids, std::vector<Index>(ids.begin() + 15, ids.end()));
}

TEST(Generate, EndsWithTheContextOrWhenTheCallerWantsIt) {
  const Decoder decoder = tiny_decoder(decoder_cases(8)[0].second);
  const std::vector<Index> prompt{3, 1, 4};
  // Positions 3 to 7, and one token that needs none.
  Generated generated = generate(decoder, prompt, {.max_tokens = 100});
  EXPECT_EQ(generated.ids.size(), 6u);
  EXPECT_EQ(generated.end, GenerationEnd::context);
  generated = generate(decoder, std::vector<Index>(8, 1), {.max_tokens = 100});
  EXPECT_EQ(generated.ids.size(), 1u);
  EXPECT_EQ(generated.end, GenerationEnd::context);

  std::vector<Index> streamed;
  const auto on_token = [&](Index id) {
    streamed.push_back(id);
    return streamed.size() < 4;
  };
  generated = generate(decoder, prompt, {.max_tokens = 100, .on_token = on_token});
  EXPECT_EQ(generated.end, GenerationEnd::caller);
  EXPECT_EQ(generated.ids.size(), 4u);
  EXPECT_EQ(streamed, generated.ids);

  EXPECT_TRUE(generate(decoder, prompt, {.max_tokens = 0}).ids.empty());
}

TEST(Generate, RejectsBeforeAnyWork) {
  const Decoder decoder = tiny_decoder(decoder_cases(8)[0].second);
  EXPECT_EQ(rejection([&] { generate(decoder, {}); }), "generate: the prompt has no tokens; expected at least one");
  EXPECT_EQ(rejection([&] { generate(decoder, std::vector<Index>(9, 1)); }),
            "generate: 9 tokens; this model has 8 positions");
  EXPECT_EQ(rejection([&] { generate(decoder, std::vector<Index>{1, -1}); }),
            "generate: token 1 has id -1; expected 0 to 12");
  EXPECT_EQ(rejection([&] { generate(decoder, std::vector<Index>{1}, {.max_tokens = -1}); }),
            "generate: max_tokens is -1; expected at least 0");
  EXPECT_EQ(rejection([&] { generate(decoder, std::vector<Index>{1}, {.sampling = {.top_p = 2}}); }),
            "sampling: top_p is 2; expected a number above 0 and at most 1");
}

TEST(Generate, ReportsParametersThatAreTooLarge) {
  const DecoderConfig config = decoder_cases(8)[0].second;
  std::vector<float> parameters = tiny_parameters(config);
  for (float& x : parameters) x *= 1e30f;
  const TestFolder folder;
  write_decoder(folder, config, parameters);
  const Decoder decoder = load_decoder(folder.path());
  EXPECT_EQ(rejection<DataError>([&] { generate(decoder, std::vector<Index>{1, 2}); }),
            folder / "model.safetensors" +
                ": the logits at position 1 are not finite: parameters are too large or not finite");
}

TEST(Generate, EndsWhenAStopIsRequested) {
  const Decoder decoder = tiny_decoder(decoder_cases(64)[0].second);
  std::stop_source source;
  Index tokens = 0;
  const auto on_token = [&](Index) {
    if (++tokens == 5) source.request_stop();
    return true;
  };
  EXPECT_THROW(
      generate(decoder, std::vector<Index>{1}, {.max_tokens = 50, .on_token = on_token}, {.stop = source.get_token()}),
      Cancelled);
  EXPECT_EQ(tokens, 5);
}

}  // namespace
}  // namespace regard::generate_test
