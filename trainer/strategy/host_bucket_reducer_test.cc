#include "trainer/strategy/host_bucket_reducer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/testing/limited_device.h"
#include "trainer/loop/testing.h"
#include "trainer/models/model.h"
#include "trainer/optim/model_state.h"
#include "trainer/strategy/shares.h"

namespace muster::train {
namespace {

using kernels::DataType;

std::unique_ptr<nn::Plan> CompileMlp(kernels::Device& device = kernels::CpuDevice()) {
  v1::ModelSpec spec;
  spec.set_name("mlp");
  for (const uint32_t width : {33, 17, 9}) spec.add_hidden(width);
  nn::CompileOptions options;
  options.max_batch = 6;
  options.device = &device;
  auto plan = nn::Compile(*nn::BuildModel(spec, {5, 5, 1}, 10), options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

struct Layout {
  bool canonical;
  DataType type;
  bool sums = true;
  bool scatters = false;
};

// Runs each rank on its own thread with its own plan and reducer.
class Group {
 public:
  using Run = std::function<void(uint32_t, nn::Plan&, HostBucketReducer&)>;

  explicit Group(uint32_t ranks) : communicators_(MakeLoopbackGroup(ranks)) {}

  void OnEachRank(const Layout& layout, const Run& run) {
    HostBucketReducerOptions options;
    options.first_bucket_bytes = 64;
    options.bucket_bytes = 1024;
    options.canonical = layout.canonical;
    options.accumulates = true;
    options.sums = layout.sums;
    options.scatters = layout.scatters;
    options.type = layout.type;
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < communicators_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto plan = CompileMlp();
        auto state = ModelState::Create(plan.get(), nullptr);
        ASSERT_TRUE(state.ok()) << state.status();
        auto reducer = HostBucketReducer::Create(communicators_[rank].get(), plan.get(), options);
        ASSERT_TRUE(reducer.ok()) << reducer.status();
        state->BindGradients((*reducer)->gradients());
        run(rank, *plan, **reducer);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  collectives::Communicator& communicator(uint32_t rank) { return *communicators_[rank]; }

 private:
  const std::vector<std::unique_ptr<collectives::Communicator>> communicators_;
};

class HostBucketReducerTest : public ::testing::TestWithParam<Layout> {
 protected:
  static constexpr uint32_t kRanks = 3;

  void OnEachRank(const Group::Run& run) { group_.OnEachRank(GetParam(), run); }

  Group group_{kRanks};
};

size_t CountOf(const nn::ParameterInfo& parameter) {
  size_t count = 1;
  for (const int64_t dimension : parameter.shape) count *= dimension;
  return count;
}

// Gradient of rank `rank` for element i of a parameter in step `step`: small multiples of three, so
// that sums and thirds are exact in every type.
float Contribution(uint32_t rank, int step, size_t i) {
  return static_cast<float>(3 * ((rank + 1) * (i % 4) + static_cast<size_t>(step)));
}

// Writes gradients in the order of backward: from the last parameter to the first.
void WriteGradients(nn::Plan& plan, HostBucketReducer& reducer, uint32_t rank, int step,
                    bool ready) {
  for (size_t p = plan.parameters().size(); p-- > 0;) {
    const nn::ParameterInfo& parameter = plan.parameters()[p];
    std::vector<float> values(CountOf(parameter));
    for (size_t i = 0; i < values.size(); ++i) values[i] = Contribution(rank, step, i);
    ASSERT_TRUE(plan.ImportInto(reducer.gradients(), parameter, values).ok());
    if (ready) reducer.Ready(parameter.offset);
  }
}

// Expects expected(i) for element i of every parameter.
void ExpectGradients(nn::Plan& plan, HostBucketReducer& reducer,
                     const std::function<float(size_t)>& expected) {
  for (const nn::ParameterInfo& parameter : plan.parameters()) {
    std::vector<float> values(CountOf(parameter));
    ASSERT_TRUE(plan.ExportFrom(reducer.gradients(), parameter, absl::MakeSpan(values)).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], expected(i)) << parameter.name << " " << i;
    }
  }
}

TEST_P(HostBucketReducerTest, SumsOverRanks) {
  OnEachRank([](uint32_t rank, nn::Plan& plan, HostBucketReducer& reducer) {
    EXPECT_GE(reducer.buckets(), 3);
    for (int step = 0; step < 3; ++step) {
      // More correct samples than a 16-bit float can represent exactly.
      reducer.Begin({0.5 * (rank + 1), 1001.0 + rank}, /*accumulated=*/false);
      WriteGradients(plan, reducer, rank, step, /*ready=*/true);
      ASSERT_TRUE(reducer.Finish().ok());
      EXPECT_EQ(reducer.totals().loss_sum, 0.5 + 1.0 + 1.5);
      EXPECT_EQ(reducer.totals().correct, 3003 + 0 + 1 + 2);
      ExpectGradients(plan, reducer, [step](size_t i) {
        return Contribution(0, step, i) + Contribution(1, step, i) + Contribution(2, step, i);
      });
    }
  });
}

// Rank r has r + 1 micro-batches. Gradients accumulate within a step but not across steps.
TEST_P(HostBucketReducerTest, AccumulatesMicroBatches) {
  OnEachRank([](uint32_t rank, nn::Plan& plan, HostBucketReducer& reducer) {
    for (int step = 0; step < 3; ++step) {
      for (uint32_t micro_batch = 0; micro_batch < rank; ++micro_batch) {
        WriteGradients(plan, reducer, rank, step, /*ready=*/false);
        reducer.Accumulate(/*first=*/micro_batch == 0);
      }
      reducer.Begin({0.25 + 1.5 * rank, 1 + 2.0 * rank}, /*accumulated=*/rank > 0);
      WriteGradients(plan, reducer, rank, step, /*ready=*/true);
      ASSERT_TRUE(reducer.Finish().ok());
      EXPECT_EQ(reducer.totals().loss_sum, 3 * 0.25 + 3 * 1.5);
      EXPECT_EQ(reducer.totals().correct, 3 * 1 + 3 * 2);
      ExpectGradients(plan, reducer, [step](size_t i) {
        return Contribution(0, step, i) + 2 * Contribution(1, step, i) +
               3 * Contribution(2, step, i);
      });
    }
  });
}

// Real backward passes over a batch of six samples: whole, and in micro-batches of different sizes.
TEST_P(HostBucketReducerTest, MicroBatchesGiveGradientOfWholeBatch) {
  // Rounding error of a gradient of at most one, on each rank and in each sum.
  const double tolerance = GetParam().type == DataType::kFloat32
                               ? 1e-6
                               : (GetParam().type == DataType::kFloat16 ? 4e-3 : 3e-2);
  OnEachRank([tolerance](uint32_t rank, nn::Plan& plan, HostBucketReducer& reducer) {
    std::mt19937 random(rank);
    std::vector<float> pixels(6 * 25);
    for (float& pixel : pixels) pixel = std::normal_distribution<float>()(random);
    const auto step = [&](const std::vector<uint32_t>& micro_batches) {
      uint32_t sample = 0;
      nn::LossResult total;
      for (size_t i = 0; i < micro_batches.size(); ++i) {
        const uint32_t samples = micro_batches[i];
        std::copy_n(pixels.begin() + sample * 25, samples * 25, plan.input());
        std::iota(plan.labels(), plan.labels() + samples, static_cast<int32_t>(sample));
        plan.Forward(samples, /*training=*/true, {1, 1, sample});
        const nn::LossResult loss = plan.Loss(samples, 0, 1.0f / 18);
        const bool last = i + 1 == micro_batches.size();
        total.loss_sum += loss.loss_sum;
        total.correct += loss.correct;
        if (last) reducer.Begin(total, /*accumulated=*/i > 0);
        plan.Backward(samples, [&](size_t offset) {
          if (last) reducer.Ready(offset);
        });
        if (!last) reducer.Accumulate(/*first=*/i == 0);
        sample += samples;
      }
      EXPECT_EQ(sample, 6);
      EXPECT_TRUE(reducer.Finish().ok());
      return std::vector<float>(reducer.gradients(),
                                reducer.gradients() + plan.parameter_elements());
    };
    plan.Initialize(3);
    const std::vector<float> whole = step({6});
    const nn::LossResult totals = reducer.totals();
    for (const std::vector<uint32_t>& micro_batches :
         std::vector<std::vector<uint32_t>>{{3, 3}, {1, 2, 3}, {6, 0}}) {
      const std::vector<float> sum = step(micro_batches);
      EXPECT_NEAR(reducer.totals().loss_sum, totals.loss_sum, 1e-5);
      EXPECT_EQ(reducer.totals().correct, totals.correct);
      float largest = 0;
      for (size_t i = 0; i < whole.size(); ++i) {
        largest = std::max(largest, std::abs(whole[i]));
        ASSERT_NEAR(sum[i], whole[i], tolerance) << i;
      }
      EXPECT_GT(largest, 0.01);
      EXPECT_EQ(sum, step(micro_batches)) << "not bit-identical";
    }
  });
}

TEST_P(HostBucketReducerTest, ReturnsErrorWhenPeerAborts) {
  OnEachRank([this](uint32_t rank, nn::Plan&, HostBucketReducer& reducer) {
    reducer.Begin({}, /*accumulated=*/false);
    if (rank == 1) {
      group_.communicator(rank).Abort(absl::AbortedError("gone"));
    }
    EXPECT_FALSE(reducer.Finish().ok());
  });
}

std::vector<Layout> Layouts() {
  std::vector<Layout> layouts;
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16}) {
    for (const bool canonical : {false, true}) layouts.push_back({canonical, type});
  }
  return layouts;
}

INSTANTIATE_TEST_SUITE_P(Layouts, HostBucketReducerTest, ::testing::ValuesIn(Layouts()),
                         [](const auto& info) {
                           return std::string(kernels::NameOf(info.param.type)) +
                                  (info.param.canonical ? "Canonical" : "");
                         });

TEST(HostBucketReducerWithoutSumsTest, KeepsEachRanksGradients) {
  constexpr uint32_t kRanks = 3;
  const Layout layout{/*canonical=*/false, DataType::kFloat32, /*sums=*/false};
  Group(kRanks).OnEachRank(layout, [](uint32_t rank, nn::Plan& plan, HostBucketReducer& reducer) {
    WriteGradients(plan, reducer, rank, 1, /*ready=*/false);
    reducer.Accumulate(/*first=*/true);
    reducer.Begin({1.5 + rank, 2}, /*accumulated=*/true);
    WriteGradients(plan, reducer, rank, 0, /*ready=*/true);
    ASSERT_TRUE(reducer.Finish().ok());
    ExpectGradients(plan, reducer, [rank](size_t i) {
      return Contribution(rank, 1, i) + Contribution(rank, 0, i);
    });
    EXPECT_EQ(reducer.totals().loss_sum, 0.5 * kRanks + 1 + 2 + 3);
    EXPECT_EQ(reducer.totals().correct, 2 * kRanks);
    EXPECT_EQ(reducer.operations(), 1);
  });
}

TEST(HostBucketReducerScatterTest, SumsEachRanksShard) {
  constexpr uint32_t kRanks = 3;
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16}) {
    const Layout layout{/*canonical=*/false, type, /*sums=*/true, /*scatters=*/true};
    Group(kRanks).OnEachRank(layout, [](uint32_t rank, nn::Plan& plan, HostBucketReducer& reducer) {
      const size_t count = plan.parameter_elements();
      const Shares::Share own = Shares(count, kRanks).of(rank);
      ASSERT_GT(own.count(), 0);
      EXPECT_EQ(reducer.operations(), 2);
      for (uint32_t step = 1; step < 3; ++step) {
        const auto write = [&](float times) {
          for (size_t i = 0; i < count; ++i) {
            reducer.gradients()[i] = times * static_cast<float>(3 * (rank + 1) * (i % 4) * step);
          }
        };
        write(1);
        reducer.Accumulate(/*first=*/true);
        reducer.Begin({1.5, 2.0 + rank}, /*accumulated=*/true);
        write(2);
        reducer.Ready(count / 2);
        ASSERT_TRUE(reducer.Finish().ok());
        EXPECT_EQ(reducer.totals().loss_sum, 4.5);
        EXPECT_EQ(reducer.totals().correct, 9);
        for (size_t i = own.begin; i < own.end; ++i) {
          ASSERT_EQ(reducer.gradients()[i], static_cast<float>(3 * 3 * 6 * (i % 4) * step)) << i;
        }
      }
    });
  }
}

TEST(HostBucketReducerMemoryTest, ReturnsExhaustionOfDeviceMemory) {
  const auto communicators = MakeLoopbackGroup(1);
  kernels::LimitedDevice device;
  const auto plan = CompileMlp(device);
  HostBucketReducerOptions options;
  const auto create = [&] {
    return HostBucketReducer::Create(communicators[0].get(), plan.get(), options).status();
  };
  EXPECT_EQ(AllocationsNeeded(device, create), 1);
  options.accumulates = true;
  EXPECT_EQ(AllocationsNeeded(device, create), 2);
}

// Reduces arrays in which all elements of a rank have the same value. Expects the same result on
// all ranks and returns it.
float SumOf(const std::vector<float>& values, DataType type) {
  std::vector<float> sums(values.size());
  const auto sum_up = [&](uint32_t rank, nn::Plan& plan, HostBucketReducer& reducer) {
    reducer.Begin({}, /*accumulated=*/false);
    std::fill_n(reducer.gradients(), plan.parameter_elements(), values[rank]);
    reducer.Ready(0);
    ASSERT_TRUE(reducer.Finish().ok());
    sums[rank] = reducer.gradients()[0];
    const auto same = [&](float sum) { return std::memcmp(&sum, &sums[rank], sizeof(sum)) == 0; };
    EXPECT_TRUE(
        std::all_of(reducer.gradients(), reducer.gradients() + plan.parameter_elements(), same));
  };
  Group(static_cast<uint32_t>(values.size())).OnEachRank({/*canonical=*/false, type}, sum_up);
  for (const float sum : sums) EXPECT_EQ(std::memcmp(&sum, &sums[0], sizeof(sum)), 0);
  return sums[0];
}

TEST(HostBucketReducerTypesTest, RoundsGradientsForReduction) {
  const std::vector<float> values = {1, 0x1p-9f, 0x1p-9f};
  EXPECT_EQ(SumOf(values, DataType::kFloat32), 1 + 0x1p-8f);
  EXPECT_EQ(SumOf({1 + 0x1p-12f}, DataType::kBfloat16), 1);
  EXPECT_EQ(SumOf({1 + 0x1p-12f}, DataType::kFloat16), 1);
  EXPECT_EQ(SumOf({1e-30f, 1e-30f}, DataType::kFloat16), 0) << "underflows without a loss scale";
  EXPECT_NEAR(SumOf({1e-30f, 1e-30f}, DataType::kBfloat16), 2e-30, 1e-32);
}

TEST(HostBucketReducerTypesTest, DividesFloat16BeforeSumming) {
  // The sums exceed the largest float16, 65,504.
  EXPECT_NEAR(SumOf({40000, 40000, 40000}, DataType::kFloat16), 120000, 120);
  EXPECT_NEAR(SumOf({60000, 50000}, DataType::kFloat16), 110000, 110);
  EXPECT_EQ(SumOf({60000}, DataType::kFloat16), 60000);
}

TEST(HostBucketReducerTypesTest, PropagatesOverflowToAllRanks) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16}) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(SumOf({1, kInfinity, 1}, type), kInfinity);
    EXPECT_TRUE(std::isnan(SumOf({1, std::nanf(""), 1}, type)));
    EXPECT_TRUE(std::isnan(SumOf({kInfinity, -kInfinity}, type)));
  }
  EXPECT_EQ(SumOf({1, 1e6f}, DataType::kFloat16), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace muster::train
