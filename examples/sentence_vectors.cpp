// SPDX-License-Identifier: Apache-2.0
//
// Sentence vectors from a BERT encoder such as MiniLM, and the cosine similarities between them.
//
//   sentence_vectors FOLDER     a folder with config.json, tokenizer.json and model.safetensors;
//                               `regard pull minilm` downloads such a folder to ~/.cache/regard/models/minilm
#include <regard/error.h>
#include <regard/model/embed.h>
#include <regard/model/tokenizer.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fprintf(stderr, "usage: sentence_vectors FOLDER\n");
    return 2;
  }
  const std::vector<std::string> sentences{"She sat on the bank of the river.", "The river bank was muddy.",
                                           "The bank raised its interest rates."};
  const regard::Encoder encoder = regard::load_encoder(argv[1]);
  const regard::Tokenizer tokenizer = regard::Tokenizer::read_folder(argv[1]);
  std::vector<std::vector<regard::Index>> ids;
  for (const std::string& sentence : sentences) ids.push_back(tokenizer.encode(sentence).ids);

  const regard::Tensor<float, 2> vectors = regard::embed_tokens(encoder, ids);  // (3, E), each of L2 norm 1
  const regard::Index E = vectors.view().shape[1];
  for (std::size_t a = 0; a < sentences.size(); ++a) {
    for (std::size_t b = a + 1; b < sentences.size(); ++b) {
      float cosine = 0;
      for (regard::Index e = 0; e < E; ++e) cosine += vectors.view()(a, e) * vectors.view()(b, e);
      std::printf("%.3f   %s | %s\n", cosine, sentences[a].c_str(), sentences[b].c_str());
    }
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "sentence_vectors: %s\n", error.what());
  return 1;
}

// Prints, with MiniLM:
//   0.517   She sat on the bank of the river. | The river bank was muddy.
//   0.271   She sat on the bank of the river. | The bank raised its interest rates.
//   0.333   The river bank was muddy. | The bank raised its interest rates.
