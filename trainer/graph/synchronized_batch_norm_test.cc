// Plans of several ranks, each in its own thread, with synchronised batch norm.
#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/graph/testing/trainer.h"

namespace muster::nn {
namespace {

// Sums the threads' values in the order of their ranks.
class SharedSum {
 public:
  explicit SharedSum(int ranks) : ranks_(ranks), parts_(ranks) {}

  template <typename T>
  void Sum(int rank, T* values, size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    parts_[rank].assign(values, values + count);
    const int turn = turn_;
    if (++arrived_ == ranks_) {
      sum_.assign(count, 0.0);
      for (const std::vector<double>& part : parts_) {
        EXPECT_EQ(part.size(), count) << "all ranks must make the same calls";
        for (size_t i = 0; i < std::min(count, part.size()); ++i) sum_[i] += part[i];
      }
      arrived_ = 0;
      ++turn_;
      all_.notify_all();
    } else {
      all_.wait(lock, [&] { return turn_ != turn; });
    }
    std::copy(sum_.begin(), sum_.end(), values);
  }

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<std::vector<double>> parts_;
  std::vector<double> sum_;
  int arrived_ = 0;
  int turn_ = 0;
};

class RankReducer : public StatisticsReducer {
 public:
  RankReducer(SharedSum* shared, int rank) : shared_(*shared), rank_(rank) {}
  void Sum(double* values, size_t count) override { shared_.Sum(rank_, values, count); }
  void Sum(float* values, size_t count) override { shared_.Sum(rank_, values, count); }

 private:
  SharedSum& shared_;
  const int rank_;
};

struct Share {
  uint32_t begin;
  uint32_t end;
};

class SynchronizedBatchNormTest : public testing::TestWithParam<TestGraph> {};

TEST_P(SynchronizedBatchNormTest, RanksMatchASingleRank) {
  constexpr uint32_t kBatch = 13;
  const Graph& graph = GetParam().graph;
  TestTrainer alone(graph, {.max_batch = kBatch});
  // Slices of different sizes, one of them empty.
  const std::vector<Share> shares = {{0, 5}, {5, 5}, {5, 6}, {6, kBatch}};
  const int ranks = static_cast<int>(shares.size());
  SharedSum sum(ranks);
  std::vector<std::unique_ptr<RankReducer>> reducers;
  std::vector<std::unique_ptr<TestTrainer>> trainers;
  for (int rank = 0; rank < ranks; ++rank) {
    reducers.push_back(std::make_unique<RankReducer>(&sum, rank));
    trainers.push_back(std::make_unique<TestTrainer>(
        graph, CompileOptions{.max_batch = 7, .synchronize_batch_norm = true}));
    trainers.back()->plan().set_statistics_reducer(reducers.back().get());
  }
  for (uint64_t step = 0; step < 4; ++step) {
    const LossResult expected = alone.Gradients(step, 0, kBatch, kBatch);
    std::vector<LossResult> results(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto [begin, end] = shares[rank];
        results[rank] = trainers[rank]->Gradients(step, begin, end - begin, kBatch);
      });
    }
    for (std::thread& thread : threads) thread.join();
    double loss = 0;
    for (const LossResult& result : results) loss += result.loss_sum;
    EXPECT_NEAR(loss, expected.loss_sum, 1e-5 * expected.loss_sum);
    std::vector<float> gradients(alone.elements(), 0.0f);
    for (const auto& trainer : trainers) {
      for (size_t i = 0; i < gradients.size(); ++i) gradients[i] += trainer->gradients()[i];
    }
    ExpectClose(gradients, {alone.gradients(), alone.elements()}, 1e-5, "gradients");
    for (const auto& trainer : trainers) {
      ExpectBuffersClose(*trainer, alone);
      std::copy_n(alone.gradients(), alone.elements(), trainer->gradients());
      trainer->Update();
    }
    alone.Update();
  }
}

std::vector<TestGraph> Cases() {
  std::vector<TestGraph> cases;
  for (TestGraph& graph : TestGraphs()) {
    for (const Node& node : graph.graph.nodes) {
      if (!std::holds_alternative<BatchNorm2d>(node.layer)) continue;
      cases.push_back(std::move(graph));
      break;
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Graphs, SynchronizedBatchNormTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST(SynchronizedBatchNormTest, IsAccurateForASmallDeviationAroundALargeMean) {
  Graph graph{{8, 8, 2}, {}};
  NodeId last = graph.Add("bn", BatchNorm2d{}, {kInput});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("fc", Linear{kTestClasses}, {last});
  SharedSum sum(1);
  RankReducer reducer(&sum, 0);
  TestTrainer shared(graph, {.max_batch = 4, .synchronize_batch_norm = true});
  TestTrainer local(graph, {.max_batch = 4});
  shared.plan().set_statistics_reducer(&reducer);
  for (TestTrainer* trainer : {&shared, &local}) {
    trainer->Fill(0, 0, 4);
    for (int64_t i = 0; i < 4 * trainer->image_elements(); ++i) trainer->plan().input()[i] += 1000;
    trainer->plan().Forward(4, true, {});
  }
  ExpectClose(shared.plan().logits(4), local.plan().logits(4), 1e-5, "logits");
}

// A plan compiled without synchronize_batch_norm never calls the reducer.
TEST(SynchronizedBatchNormTest, IsOptional) {
  class Refusing : public StatisticsReducer {
   public:
    void Sum(double*, size_t) override { ADD_FAILURE() << "called"; }
    void Sum(float*, size_t) override { ADD_FAILURE() << "called"; }
  } refusing;
  TestTrainer trainer(SmallResNet(), {.max_batch = 4});
  trainer.plan().set_statistics_reducer(&refusing);
  trainer.Gradients(0, 0, 4, 4);
}

}  // namespace
}  // namespace muster::nn
