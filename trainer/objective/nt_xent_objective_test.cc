// Compares NT-Xent on several ranks (threads) with the reference kernels on the whole group.
#include "trainer/objective/nt_xent_objective.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "common/testing/allocations.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/limited_device.h"
#include "trainer/data/sampler.h"
#include "trainer/loop/testing.h"

namespace muster::train {
namespace {

using testing::HasSubstr;
using Floats = std::vector<float>;
using Group = std::vector<std::unique_ptr<collectives::Communicator>>;

constexpr int64_t kWidth = 13;
constexpr double kTemperature = 0.2;

Floats RandomEmbeddings(uint32_t samples, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(samples * kWidth);
  for (float& value : values) value = normal(random);
  return values;
}

struct Outcome {
  double loss_sum = 0;
  uint64_t correct = 0;
  Floats gradients;
};

// Result of the reference kernels for one group.
Outcome Direct(const Floats& embeddings, float scale) {
  const kernels::KernelTable& table = kernels::ReferenceKernels();
  const auto samples = static_cast<int64_t>(embeddings.size()) / kWidth;
  const kernels::NtXentShape shape{.samples = samples,
                                   .anchors = samples,
                                   .width = kWidth,
                                   .temperature = static_cast<float>(kTemperature)};
  Floats units(embeddings.size()), inverse_norms(samples), logits(shape.logits_elements());
  Floats log_sums(shape.row_stride());
  Outcome outcome;
  outcome.gradients.resize(embeddings.size());
  table.l2_normalize_forward(samples, kWidth, embeddings.data(), units.data(),
                             inverse_norms.data());
  nn::LossResult result;
  table.nt_xent_forward(shape, units.data(), logits.data(), log_sums.data(), nullptr, &result);
  table.nt_xent_backward(shape, scale, nullptr, units.data(), log_sums.data(), logits.data(),
                         outcome.gradients.data());
  table.l2_normalize_backward(samples, kWidth, units.data(), inverse_norms.data(),
                              outcome.gradients.data(), outcome.gradients.data());
  outcome.loss_sum = result.loss_sum;
  outcome.correct = result.correct;
  return outcome;
}

NtXentOptions Options(collectives::Communicator* group, uint32_t max_samples) {
  return {.temperature = kTemperature, .group = group, .max_samples = max_samples, .width = kWidth};
}

// Samples of each rank, two per image, of a batch divided as by the loader.
std::vector<uint32_t> SharesOf(uint32_t images, uint32_t ranks) {
  std::vector<uint32_t> samples;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    samples.push_back(2 * static_cast<uint32_t>(data::Share(images, rank, ranks).size()));
  }
  return samples;
}

Floats Slice(const Floats& all, uint32_t first_sample, uint32_t samples) {
  return Floats(all.begin() + first_sample * kWidth,
                all.begin() + (first_sample + samples) * kWidth);
}

// Combined result of all ranks, where rank r has shares[r] samples; `objectives` are by rank.
Outcome ComputeOn(std::vector<std::unique_ptr<NtXentObjective>>& objectives,
                  const std::vector<uint32_t>& shares, const Floats& embeddings, float scale) {
  std::vector<Outcome> outcomes(shares.size());
  const auto results = collectives::RunRankThreads(
      static_cast<uint32_t>(shares.size()), [&](uint32_t rank) -> absl::Status {
        const uint32_t first = std::accumulate(shares.begin(), shares.begin() + rank, 0u);
        const Floats own = Slice(embeddings, first, shares[rank]);
        // At least one element, so that the gradient pointer is not null without samples.
        outcomes[rank].gradients.assign(std::max<size_t>(own.size(), 1), std::nanf(""));
        ASSIGN_OR_RETURN(const nn::LossResult loss,
                         objectives[rank]->Compute(own.data(), shares[rank], scale,
                                                   outcomes[rank].gradients.data()));
        outcomes[rank].gradients.resize(own.size());
        outcomes[rank].loss_sum = loss.loss_sum;
        outcomes[rank].correct = loss.correct;
        return absl::OkStatus();
      });
  Outcome together;
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    EXPECT_EQ(results[rank], "");
    together.loss_sum += outcomes[rank].loss_sum;
    together.correct += outcomes[rank].correct;
    together.gradients.insert(together.gradients.end(), outcomes[rank].gradients.begin(),
                              outcomes[rank].gradients.end());
  }
  return together;
}

std::vector<std::unique_ptr<NtXentObjective>> MakeObjectives(const Group& group,
                                                             uint32_t max_samples) {
  std::vector<std::unique_ptr<NtXentObjective>> objectives(group.size());
  const auto results = collectives::RunRankThreads(
      static_cast<uint32_t>(group.size()), [&](uint32_t rank) -> absl::Status {
        ASSIGN_OR_RETURN(objectives[rank],
                         NtXentObjective::Create(Options(group[rank].get(), max_samples)));
        return absl::OkStatus();
      });
  for (const std::string& result : results) EXPECT_EQ(result, "");
  return objectives;
}

void ExpectSame(const Outcome& actual, const Outcome& expected, const std::string& what) {
  EXPECT_NEAR(actual.loss_sum, expected.loss_sum, 1e-5 * std::max(1.0, expected.loss_sum)) << what;
  EXPECT_EQ(actual.correct, expected.correct) << what;
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size()) << what;
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    ASSERT_NEAR(actual.gradients[i], expected.gradients[i], 1e-5) << what << " at " << i;
  }
}

TEST(NtXentObjectiveTest, ResultIsIndependentOfNumberOfRanks) {
  // Equal shares, uneven shares, and ranks without samples.
  for (const uint32_t images : {16u, 10u, 3u, 1u}) {
    const Floats embeddings = RandomEmbeddings(2 * images, images);
    const float scale = 1.0f / static_cast<float>(2 * images);
    const Outcome expected = Direct(embeddings, scale);
    for (const uint32_t ranks : {1u, 2u, 4u, 5u}) {
      const Group group = MakeLoopbackGroup(ranks);
      const std::vector<uint32_t> shares = SharesOf(images, ranks);
      auto objectives = MakeObjectives(group, *std::max_element(shares.begin(), shares.end()));
      ExpectSame(ComputeOn(objectives, shares, embeddings, scale), expected,
                 absl::StrCat(images, " images on ", ranks, " ranks"));
    }
  }
}

// A step with fewer samples must not use data of earlier steps.
TEST(NtXentObjectiveTest, AllowsSharesToChangeBetweenSteps) {
  const Group group = MakeLoopbackGroup(3);
  auto objectives = MakeObjectives(group, 12);
  uint32_t seed = 50;
  for (const std::vector<uint32_t>& shares : std::vector<std::vector<uint32_t>>{
           {12, 12, 12}, {2, 0, 4}, {0, 0, 0}, {0, 12, 2}, {4, 4, 4}, {12, 10, 12}}) {
    const Floats embeddings =
        RandomEmbeddings(std::accumulate(shares.begin(), shares.end(), 0u), seed++);
    ExpectSame(ComputeOn(objectives, shares, embeddings, 0.5f), Direct(embeddings, 0.5f),
               absl::StrCat(shares[0], " ", shares[1], " ", shares[2]));
  }
}

// Ranks may have different max_samples.
TEST(NtXentObjectiveTest, SizesBlocksForLargestRank) {
  const Group group = MakeLoopbackGroup(2);
  std::vector<std::unique_ptr<NtXentObjective>> objectives(2);
  const auto results = collectives::RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(objectives[rank],
                     NtXentObjective::Create(Options(group[rank].get(), rank == 0 ? 3 : 8)));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, testing::Each(""));
  const Floats embeddings = RandomEmbeddings(12, 1);
  ExpectSame(ComputeOn(objectives, {4, 8}, embeddings, 1), Direct(embeddings, 1), "4 and 8");
}

TEST(NtXentObjectiveTest, ResultIsBitIdenticalInEveryRun) {
  const std::vector<uint32_t> shares = SharesOf(10, 4);
  const Floats embeddings = RandomEmbeddings(20, 8);
  std::vector<Outcome> outcomes;
  for (int run = 0; run < 3; ++run) {
    const Group group = MakeLoopbackGroup(4);
    auto objectives = MakeObjectives(group, 6);
    outcomes.push_back(ComputeOn(objectives, shares, embeddings, 1));
  }
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.loss_sum, outcomes[0].loss_sum);
    EXPECT_EQ(outcome.gradients, outcomes[0].gradients);
  }
}

// Two nodes with two ranks each: negatives come from the sample's node only.
TEST(NtXentObjectiveTest, UsesNegativesOfNode) {
  const std::vector<uint32_t> shares = {4, 6, 2, 8};
  const Floats embeddings = RandomEmbeddings(20, 21);
  Outcome expected = Direct(Slice(embeddings, 0, 10), 0.1f);
  const Outcome second = Direct(Slice(embeddings, 10, 10), 0.1f);
  expected.loss_sum += second.loss_sum;
  expected.correct += second.correct;
  expected.gradients.insert(expected.gradients.end(), second.gradients.begin(),
                            second.gradients.end());
  Group nodes[2] = {MakeLoopbackGroup(2), MakeLoopbackGroup(2)};
  std::vector<std::unique_ptr<NtXentObjective>> objectives;
  for (const Group& node : nodes) {
    for (auto& objective : MakeObjectives(node, 8)) objectives.push_back(std::move(objective));
  }
  ExpectSame(ComputeOn(objectives, shares, embeddings, 0.1f), expected, "by node");
  const Outcome global = Direct(embeddings, 0.1f);
  EXPECT_GT(std::abs(global.loss_sum - expected.loss_sum), 1);
}

TEST(NtXentObjectiveTest, UsesNegativesOfRank) {
  const std::vector<uint32_t> shares = {6, 0, 8};
  const Floats embeddings = RandomEmbeddings(14, 22);
  Outcome expected;
  std::vector<std::unique_ptr<NtXentObjective>> objectives;
  uint32_t first = 0;
  for (const uint32_t samples : shares) {
    const Outcome own = Direct(Slice(embeddings, first, samples), 0.1f);
    expected.loss_sum += own.loss_sum;
    expected.correct += own.correct;
    expected.gradients.insert(expected.gradients.end(), own.gradients.begin(), own.gradients.end());
    first += samples;
    auto objective = NtXentObjective::Create(Options(nullptr, 8));
    ASSERT_TRUE(objective.ok()) << objective.status();
    objectives.push_back(*std::move(objective));
  }
  ExpectSame(ComputeOn(objectives, shares, embeddings, 0.1f), expected, "by rank");
}

TEST(NtXentObjectiveTest, LossOfSingleImageIsZero) {
  const Group group = MakeLoopbackGroup(2);
  auto objectives = MakeObjectives(group, 2);
  const Outcome outcome = ComputeOn(objectives, {0, 2}, RandomEmbeddings(2, 5), 1);
  EXPECT_EQ(outcome.loss_sum, 0);
  EXPECT_EQ(outcome.correct, 2u);
  EXPECT_THAT(outcome.gradients, testing::Each(0.0f));
}

TEST(NtXentObjectiveTest, ComputesSameLossWithoutGradient) {
  const Floats embeddings = RandomEmbeddings(10, 6);
  auto objective = NtXentObjective::Create(Options(nullptr, 10));
  ASSERT_TRUE(objective.ok()) << objective.status();
  const auto loss = (*objective)->Compute(embeddings.data(), 10, 1, nullptr);
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_NEAR(loss->loss_sum, Direct(embeddings, 1).loss_sum, 1e-4);
}

TEST(NtXentObjectiveTest, DoesNotAllocateInStep) {
  const Floats embeddings = RandomEmbeddings(24, 7);
  Floats gradients(embeddings.size());
  const int64_t at_first = Allocations();
  auto objective = NtXentObjective::Create(Options(nullptr, 24));
  ASSERT_TRUE(objective.ok()) << objective.status();
  const int64_t created = Allocations();
  EXPECT_GT(created, at_first);
  for (const uint32_t samples : {24u, 10u, 24u}) {
    const auto loss = (*objective)->Compute(embeddings.data(), samples, 1, gradients.data());
    ASSERT_TRUE(loss.ok());
  }
  EXPECT_EQ(Allocations(), created);
}

TEST(NtXentObjectiveTest, RejectsInvalidOptions) {
  NtXentOptions options = Options(nullptr, 8);
  for (const double temperature : {0.0, -1.0, 1e-60, std::nan(""), 1e60}) {
    options.temperature = temperature;
    EXPECT_THAT(NtXentObjective::Create(options).status().message(), HasSubstr("temperature"));
  }
  options = Options(nullptr, 8);
  options.width = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(NtXentObjective::Create(options).status()));
  EXPECT_THAT(NtXentObjective::Create(Options(nullptr, 1u << 31)).status().message(),
              HasSubstr("too many"));

  auto objective = NtXentObjective::Create(Options(nullptr, 8));
  ASSERT_TRUE(objective.ok()) << objective.status();
  const Floats embeddings = RandomEmbeddings(10, 9);
  for (const uint32_t samples : {7u, 10u}) {
    EXPECT_TRUE(absl::IsInvalidArgument(
        (*objective)->Compute(embeddings.data(), samples, 1, nullptr).status()));
  }
}

TEST(NtXentObjectiveTest, ReturnsExhaustionOfDeviceMemory) {
  kernels::LimitedDevice device;
  NtXentOptions options = Options(nullptr, 8);
  options.device = &device;
  const auto create = [&] { return NtXentObjective::Create(options).status(); };
  EXPECT_EQ(AllocationsNeeded(device, create), 6);
  device.set_allocations(2);
  EXPECT_THAT(std::string(create().message()),
              HasSubstr("nt_xent: cannot allocate memory for 8 x 8 similarities: "));
}

// A rank waits for a peer that never calls.
TEST(NtXentObjectiveTest, ReturnsErrorWhenAborted) {
  const Group group = MakeLoopbackGroup(2);
  auto objectives = MakeObjectives(group, 8);
  const Floats embeddings = RandomEmbeddings(8, 10);
  const absl::Status reason = absl::AbortedError("the generation is over");
  absl::Time aborted;
  absl::Status status;
  collectives::RunRankThreads(2, [&](uint32_t rank) -> absl::Status {
    Floats gradients(embeddings.size());
    const auto step = [&] {
      return objectives[rank]->Compute(embeddings.data(), 8, 1, gradients.data()).status();
    };
    for (int i = 0; i < 3; ++i) RETURN_IF_ERROR(step());
    if (rank == 0) {
      status = step();
    } else {
      aborted = absl::Now();
      group[0]->Abort(reason);
    }
    return absl::OkStatus();
  });
  EXPECT_EQ(status, reason);
  EXPECT_LT(absl::Now() - aborted, absl::Seconds(2));
}

}  // namespace
}  // namespace muster::train
