#include "worker/train/gradient_exchange.h"

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "worker/nn/model.h"
#include "worker/train/model_state.h"
#include "worker/train/testing.h"

namespace muster::train {
namespace {

std::unique_ptr<nn::Plan> CompileMlp() {
  v1::ModelSpec spec;
  spec.set_name("mlp");
  for (const uint32_t width : {33, 17, 9}) spec.add_hidden(width);
  nn::CompileOptions options;
  options.max_batch = 2;
  auto plan = nn::Compile(*nn::BuildModel(spec, {5, 5, 1}, 10), options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

class GradientExchangeTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr uint32_t kRanks = 3;

  ExchangeOptions Options() const { return {64, 1024, /*canonical=*/GetParam()}; }

  // On each rank, with a thread, a plan and an exchange of its own.
  void OnEachRank(const std::function<void(uint32_t, nn::Plan&, GradientExchange&)>& run) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto plan = CompileMlp();
        ModelState state(plan.get());
        auto exchange = GradientExchange::Create(communicators_[rank].get(), plan.get(), Options());
        ASSERT_TRUE(exchange.ok()) << exchange.status();
        run(rank, *plan, **exchange);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::unique_ptr<collectives::Communicator>> communicators_ =
      MakeLoopbackGroup(kRanks);
};

// What rank `rank` contributes to element i of a parameter in step `step`: whole numbers, so that
// sums are exact.
float Contribution(uint32_t rank, int step, size_t i) {
  return static_cast<float>((rank + 1) * (i % 1000) + step);
}

TEST_P(GradientExchangeTest, SumsOverTheRanks) {
  OnEachRank([](uint32_t rank, nn::Plan& plan, GradientExchange& exchange) {
    EXPECT_GE(exchange.buckets(), 3);
    for (int step = 0; step < 3; ++step) {
      exchange.Begin({0.5 * (rank + 1), rank});
      // As backward does it: from the last parameter to the first.
      for (size_t p = plan.parameters().size(); p-- > 0;) {
        const nn::ParameterInfo& parameter = plan.parameters()[p];
        std::vector<float> values;
        size_t count = 1;
        for (const int64_t dimension : parameter.shape) count *= dimension;
        for (size_t i = 0; i < count; ++i) values.push_back(Contribution(rank, step, i));
        ASSERT_TRUE(plan.ImportInto(exchange.gradients(), parameter, values).ok());
        exchange.Ready(parameter.offset);
      }
      ASSERT_TRUE(exchange.Finish().ok());
      EXPECT_EQ(exchange.totals().loss_sum, 0.5 + 1.0 + 1.5);
      EXPECT_EQ(exchange.totals().correct, 0 + 1 + 2);
      for (const nn::ParameterInfo& parameter : plan.parameters()) {
        size_t count = 1;
        for (const int64_t dimension : parameter.shape) count *= dimension;
        std::vector<float> values(count);
        ASSERT_TRUE(plan.ExportFrom(exchange.gradients(), parameter, absl::MakeSpan(values)).ok());
        for (size_t i = 0; i < count; ++i) {
          const float sum =
              Contribution(0, step, i) + Contribution(1, step, i) + Contribution(2, step, i);
          ASSERT_EQ(values[i], sum) << parameter.name << " " << i;
        }
      }
    }
  });
}

TEST_P(GradientExchangeTest, APeerThatAbortsEndsTheStep) {
  OnEachRank([this](uint32_t rank, nn::Plan&, GradientExchange& exchange) {
    exchange.Begin({});
    if (rank == 1) {
      communicators_[rank]->Abort(absl::AbortedError("gone"));
    }
    EXPECT_FALSE(exchange.Finish().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, GradientExchangeTest, ::testing::Bool());

}  // namespace
}  // namespace muster::train
