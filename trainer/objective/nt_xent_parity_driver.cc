// Computes NT-Xent on given embeddings, for nt_xent_parity_test.py: nt_xent_parity_driver
// TEMPERATURE WIDTH SAMPLES…, where SAMPLES are the samples of each rank, even and at least 0.
// Ranks are threads.
//
// stdin: embeddings, float32 [all samples, width]. stdout: the mean loss and the number of correct
// samples as float64, then the mean loss's gradient, float32 like the embeddings.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "trainer/loop/testing.h"
#include "trainer/objective/nt_xent_objective.h"

namespace muster::train {
namespace {

struct Arguments {
  double temperature = 0;
  int64_t width = 0;
  std::vector<uint32_t> samples;  // by rank
};

bool Parse(int count, char** words, Arguments* arguments) {
  if (count < 4 || !absl::SimpleAtod(words[1], &arguments->temperature) ||
      !absl::SimpleAtoi(words[2], &arguments->width)) {
    return false;
  }
  for (int i = 3; i < count; ++i) {
    arguments->samples.emplace_back();
    if (!absl::SimpleAtoi(words[i], &arguments->samples.back())) return false;
  }
  return true;
}

int Run(const Arguments& arguments) {
  const auto ranks = static_cast<uint32_t>(arguments.samples.size());
  const uint32_t samples = std::accumulate(arguments.samples.begin(), arguments.samples.end(), 0u);
  std::vector<float> embeddings(samples * arguments.width), gradients(embeddings.size());
  if (std::fread(embeddings.data(), sizeof(float), embeddings.size(), stdin) != embeddings.size()) {
    std::fprintf(stderr, "cannot read %zu floats from stdin\n", embeddings.size());
    return 1;
  }
  const auto world = MakeLoopbackGroup(ranks);
  std::vector<nn::LossResult> losses(ranks);
  const auto results = collectives::RunRankThreads(ranks, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(const auto objective,
                     NtXentObjective::Create({.temperature = arguments.temperature,
                                              .group = world[rank].get(),
                                              .max_samples = arguments.samples[rank],
                                              .width = arguments.width}));
    const int64_t first = arguments.width * std::accumulate(arguments.samples.begin(),
                                                            arguments.samples.begin() + rank, 0);
    ASSIGN_OR_RETURN(
        losses[rank],
        objective->Compute(embeddings.data() + first, arguments.samples[rank],
                           1.0f / static_cast<float>(samples), gradients.data() + first));
    return absl::OkStatus();
  });
  double totals[2] = {0, 0};
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (!results[rank].empty()) {
      std::fprintf(stderr, "rank %u: %s\n", rank, results[rank].c_str());
      return 1;
    }
    totals[0] += losses[rank].loss_sum / samples;
    totals[1] += losses[rank].correct;
  }
  std::fwrite(totals, sizeof(totals[0]), 2, stdout);
  std::fwrite(gradients.data(), sizeof(float), gradients.size(), stdout);
  return 0;
}

}  // namespace
}  // namespace muster::train

int main(int argc, char** argv) {
  muster::train::Arguments arguments;
  if (!muster::train::Parse(argc, argv, &arguments)) {
    std::fprintf(stderr, "usage: nt_xent_parity_driver TEMPERATURE WIDTH SAMPLES…\n");
    return 2;
  }
  return muster::train::Run(arguments);
}
