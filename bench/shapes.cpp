// SPDX-License-Identifier: Apache-2.0
//
// Regard's forward pass compared with three separate steps (product, softmax, product) on the same kernels, for every
// line of shapes.txt.
//
//     shapes FILE [--threads N] [--quick]    prints one line per shape:  shape ⇥ ratio of each round …
//
// A ratio is the time of the three steps divided by that of attention_forward. In each round both run in turn, each
// repeated for about 200 µs; the order alternates. Their results are compared first. A shape has 3 to 15 rounds,
// depending on how long one takes, and one round with --quick. Read next: three_steps.h.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "regard/attention.h"
#include "three_steps.h"

namespace {

using regard::Index;
using regard::Tensor;
using regard::bench::Arrays;
using regard::bench::Shape;
using Clock = std::chrono::steady_clock;

constexpr int kMaxRounds = 15, kMinRounds = 3;
constexpr double kSecondsPerShape = 0.3, kSecondsPerMeasurement = 200e-6;
constexpr auto kIdle = std::chrono::milliseconds(5);

// "heads L S D [causal] [window=N] [mask]"
Shape parse(const std::string& line) {
  std::istringstream words(line);
  Shape shape;
  words >> shape.heads >> shape.queries >> shape.keys >> shape.depth;
  if (!words) throw std::runtime_error("expected heads, L, S and D");
  for (std::string word; words >> word;) {
    if (word == "causal") {
      shape.causal = true;
    } else if (word == "mask") {
      shape.mask = true;
    } else if (word.starts_with("window=")) {
      shape.window = std::stoll(word.substr(7));
    } else {
      throw std::runtime_error("unknown option: " + word);
    }
  }
  return shape;
}

Arrays arrays_of(const Shape& shape) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto filled = [&](Index rows) {
    Tensor<float, 4> tensor({1, shape.heads, rows, shape.depth});
    std::generate(tensor.data(), tensor.data() + tensor.size(), [&] { return normal(random); });
    return tensor;
  };
  Arrays arrays{filled(shape.queries), filled(shape.keys), filled(shape.keys), {}};
  if (shape.mask) {
    arrays.seen = Tensor<std::uint8_t, 4>({1, 1, shape.queries, shape.keys});
    for (Index i = 0; i < shape.queries; ++i) {
      for (Index j = 0; j < shape.keys; ++j) arrays.seen(0, 0, i, j) = j == 0 || random() % 10 != 0;
    }
  }
  return arrays;
}

double seconds(const std::function<void()>& call, int repeats) {
  const auto begin = Clock::now();
  for (int i = 0; i < repeats; ++i) call();
  return std::chrono::duration<double>(Clock::now() - begin).count() / repeats;
}

void measure(const std::string& line, int threads, bool quick) {
  const Shape shape = parse(line);
  const Arrays arrays = arrays_of(shape);
  Tensor<float, 4> fused(arrays.query.shape()), steps(arrays.query.shape());
  regard::AttentionOptions options;
  options.causal = shape.causal;
  options.query_offset = regard::QueryAlignment::bottom_right;
  if (shape.window >= 0) options.window.left = shape.window;
  if (shape.mask) options.mask = arrays.mask();
  regard::Runtime runtime;
  runtime.num_threads = threads;
  regard::bench::ThreeSteps three(shape, arrays, runtime);
  const std::function<void()> calls[] = {[&] {
                                           regard::attention_forward(arrays.query.view(), arrays.key.view(),
                                                                     arrays.value.view(), {.context = fused.view()},
                                                                     options, runtime);
                                         },
                                         [&] { three.run(steps); }};

  int repeats[2];
  double round_seconds = 0.0;
  for (int i = 0; i < 2; ++i) {
    calls[i]();
    const double once = seconds(calls[i], 1);
    repeats[i] = std::clamp(static_cast<int>(kSecondsPerMeasurement / std::max(once, 1e-9)), 1, 1000);
    round_seconds += once * repeats[i] + 0.005;
  }
  for (Index i = 0; i < fused.size(); ++i) {
    if (!(std::fabs(fused.data()[i] - steps.data()[i]) < 1e-4f)) throw std::runtime_error("the two results differ");
  }
  const int rounds = quick ? 1 : std::clamp(static_cast<int>(kSecondsPerShape / round_seconds), kMinRounds, kMaxRounds);
  std::cout << line;
  for (int turn = 0; turn < rounds; ++turn) {
    double taken[2];
    for (int place = 0; place < 2; ++place) {
      const int i = (place + turn) % 2;
      std::this_thread::sleep_for(kIdle);
      taken[i] = seconds(calls[i], repeats[i]);
    }
    std::cout << '\t' << taken[1] / taken[0];
  }
  std::cout << std::endl;
}

}  // namespace

int main(int count, char** arguments) try {
  std::string path;
  int threads = 2;
  bool quick = false;
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    if (word == "--quick") {
      quick = true;
    } else if (word == "--threads" && i + 1 < count) {
      threads = std::stoi(arguments[++i]);
    } else {
      path = word;
    }
  }
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot open " + path);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    try {
      measure(line, threads, quick);
    } catch (const std::exception& error) {
      throw std::runtime_error(path + ", line " + std::to_string(number) + ": " + error.what());
    }
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "shapes: " << error.what() << '\n';
  return 1;
}
