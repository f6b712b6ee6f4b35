#include "worker/train/gradient_exchange.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
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
  options.max_batch = 6;
  auto plan = nn::Compile(*nn::BuildModel(spec, {5, 5, 1}, 10), options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

class GradientExchangeTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr uint32_t kRanks = 3;

  ExchangeOptions Options() const {
    return {64, 1024, /*canonical=*/GetParam(), /*accumulates=*/true};
  }

  // On each rank, with a thread, a plan and an exchange of its own.
  void OnEachRank(const std::function<void(uint32_t, nn::Plan&, GradientExchange&)>& run) {
    std::vector<std::thread> threads;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto plan = CompileMlp();
        states_[rank] = std::make_unique<ModelState>(plan.get(), nullptr);
        auto exchange = GradientExchange::Create(communicators_[rank].get(), plan.get(), Options());
        ASSERT_TRUE(exchange.ok()) << exchange.status();
        run(rank, *plan, **exchange);
        states_[rank].reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<std::unique_ptr<collectives::Communicator>> communicators_ =
      MakeLoopbackGroup(kRanks);
  std::unique_ptr<ModelState> states_[kRanks];
};

size_t CountOf(const nn::ParameterInfo& parameter) {
  size_t count = 1;
  for (const int64_t dimension : parameter.shape) count *= dimension;
  return count;
}

// What rank `rank` contributes to element i of a parameter in step `step`: whole numbers, so that
// sums are exact.
float Contribution(uint32_t rank, int step, size_t i) {
  return static_cast<float>((rank + 1) * (i % 1000) + step);
}

// As backward leaves it: from the last parameter to the first.
void WriteGradients(nn::Plan& plan, GradientExchange& exchange, uint32_t rank, int step,
                    bool ready) {
  for (size_t p = plan.parameters().size(); p-- > 0;) {
    const nn::ParameterInfo& parameter = plan.parameters()[p];
    std::vector<float> values(CountOf(parameter));
    for (size_t i = 0; i < values.size(); ++i) values[i] = Contribution(rank, step, i);
    ASSERT_TRUE(plan.ImportInto(exchange.gradients(), parameter, values).ok());
    if (ready) exchange.Ready(parameter.offset);
  }
}

// expected(i) of each element i of each parameter.
void ExpectGradients(nn::Plan& plan, GradientExchange& exchange,
                     const std::function<float(size_t)>& expected) {
  for (const nn::ParameterInfo& parameter : plan.parameters()) {
    std::vector<float> values(CountOf(parameter));
    ASSERT_TRUE(plan.ExportFrom(exchange.gradients(), parameter, absl::MakeSpan(values)).ok());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], expected(i)) << parameter.name << " " << i;
    }
  }
}

TEST_P(GradientExchangeTest, SumsOverTheRanks) {
  OnEachRank([](uint32_t rank, nn::Plan& plan, GradientExchange& exchange) {
    EXPECT_GE(exchange.buckets(), 3);
    for (int step = 0; step < 3; ++step) {
      exchange.Begin({0.5 * (rank + 1), rank});
      WriteGradients(plan, exchange, rank, step, /*ready=*/true);
      ASSERT_TRUE(exchange.Finish().ok());
      EXPECT_EQ(exchange.totals().loss_sum, 0.5 + 1.0 + 1.5);
      EXPECT_EQ(exchange.totals().correct, 0 + 1 + 2);
      ExpectGradients(plan, exchange, [step](size_t i) {
        return Contribution(0, step, i) + Contribution(1, step, i) + Contribution(2, step, i);
      });
    }
  });
}

// Rank r has r + 1 micro-batches, as shares may be short: each step's are added up, and no step's
// reach the next.
TEST_P(GradientExchangeTest, MicroBatchesAreAddedUp) {
  OnEachRank([](uint32_t rank, nn::Plan& plan, GradientExchange& exchange) {
    for (int step = 0; step < 3; ++step) {
      for (uint32_t part = 0; part < rank; ++part) {
        WriteGradients(plan, exchange, rank, step, /*ready=*/false);
        exchange.Accumulate({1.5, 2});
      }
      exchange.Begin({0.25, 1});
      WriteGradients(plan, exchange, rank, step, /*ready=*/true);
      ASSERT_TRUE(exchange.Finish().ok());
      EXPECT_EQ(exchange.totals().loss_sum, 3 * 0.25 + 3 * 1.5);
      EXPECT_EQ(exchange.totals().correct, 3 * 1 + 3 * 2);
      ExpectGradients(plan, exchange, [step](size_t i) {
        return Contribution(0, step, i) + 2 * Contribution(1, step, i) +
               3 * Contribution(2, step, i);
      });
    }
  });
}

// Real backward passes: the batch of six in one, and in parts of different sizes.
TEST_P(GradientExchangeTest, PartsOfABatchGiveTheBatchsGradient) {
  OnEachRank([this](uint32_t rank, nn::Plan& plan, GradientExchange& exchange) {
    std::mt19937 random(rank);
    std::vector<float> pixels(6 * 25);
    for (float& pixel : pixels) pixel = std::normal_distribution<float>()(random);
    const auto step = [&](const std::vector<uint32_t>& parts) {
      uint32_t row = 0;
      for (size_t part = 0; part < parts.size(); ++part) {
        const uint32_t rows = parts[part];
        std::copy_n(pixels.begin() + row * 25, rows * 25, plan.input());
        for (uint32_t i = 0; i < rows; ++i) plan.labels()[i] = static_cast<int32_t>(row + i);
        plan.Forward(rows, /*training=*/true, {1, 1, row});
        const nn::LossResult loss = plan.Loss(rows, 0, 1.0f / 18);
        const bool last = part + 1 == parts.size();
        if (last) exchange.Begin(loss);
        plan.Backward(rows, [&](size_t offset) {
          if (last) exchange.Ready(offset);
        });
        if (!last) exchange.Accumulate(loss);
        row += rows;
      }
      EXPECT_EQ(row, 6);
      EXPECT_TRUE(exchange.Finish().ok());
      return std::vector<float>(exchange.gradients(),
                                exchange.gradients() + plan.parameter_elements());
    };
    states_[rank]->BindGradients(exchange.gradients());
    plan.Initialize(3);
    const std::vector<float> whole = step({6});
    const StepTotals totals = exchange.totals();
    for (const std::vector<uint32_t>& parts :
         std::vector<std::vector<uint32_t>>{{3, 3}, {1, 2, 3}, {6, 0}}) {
      const std::vector<float> sum = step(parts);
      EXPECT_NEAR(exchange.totals().loss_sum, totals.loss_sum, 1e-5);
      EXPECT_EQ(exchange.totals().correct, totals.correct);
      float largest = 0;
      for (size_t i = 0; i < whole.size(); ++i) {
        largest = std::max(largest, std::abs(whole[i]));
        ASSERT_NEAR(sum[i], whole[i], 1e-6) << i;
      }
      EXPECT_GT(largest, 0.01);
      EXPECT_EQ(sum, step(parts)) << "to the last bit";
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
