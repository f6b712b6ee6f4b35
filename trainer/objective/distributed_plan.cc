#include "trainer/objective/distributed_plan.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <utility>

#include "collectives/communicator.h"
#include "collectives/factory.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "gtest/gtest.h"
#include "kernels/aligned_floats.h"
#include "trainer/data/sampler.h"
#include "trainer/graph/plan.h"
#include "trainer/objective/objective.h"
#include "trainer/objective/statistics_reducer.h"
#include "trainer/strategy/process_groups.h"

namespace muster::train {
namespace {

constexpr float kLearningRate = 0.05f;

class Rank {
 public:
  static absl::StatusOr<std::unique_ptr<Rank>> Make(const nn::Graph& graph,
                                                    const DistributedOptions& options,
                                                    const ProcessGroups& groups) {
    std::unique_ptr<Rank> rank(new Rank(graph, options, groups.world.get()));
    const auto largest = static_cast<uint32_t>(data::LargestShare(options.samples, options.ranks));
    // An image may have two samples, its views.
    nn::CompileOptions compile{.max_batch = 2 * largest};
    compile.synchronize_batch_norm = options.synchronize_batch_norm;
    ASSIGN_OR_RETURN(rank->plan_, nn::Compile(graph, compile));
    rank->width_ = static_cast<int64_t>(rank->plan_->logits(1).size());
    ASSIGN_OR_RETURN(rank->objective_,
                     Objective::Create(options.objective, groups, compile.max_batch, rank->width_));
    rank->Bind();
    return rank;
  }

  absl::StatusOr<DistributedStep> Step(uint32_t step) {
    const uint32_t views = objective_->views();
    const data::SampleRange share = data::Share(options_.samples, world_->rank(), options_.ranks);
    const auto samples = static_cast<uint32_t>(share.size() * views);
    LoadBatch(step, share.begin * views, samples);
    plan_->Forward(samples, /*training=*/true, {.seed = 1, .step = step});
    ASSIGN_OR_RETURN(const nn::LossResult loss,
                     objective_->Compute(*plan_, samples, uint64_t{options_.samples} * views,
                                         /*training=*/true));
    plan_->Backward(samples, [](size_t) {});
    RETURN_IF_ERROR(reducer_.status());
    DistributedStep result;
    double totals[] = {loss.loss_sum, loss.correct};
    RETURN_IF_ERROR(Sum(totals, 2, collectives::DataType::kFloat64));
    RETURN_IF_ERROR(
        Sum(gradients_.get(), plan_->parameter_elements(), collectives::DataType::kFloat32));
    result.loss_sum = totals[0];
    result.correct = totals[1];
    ASSIGN_OR_RETURN(result.gradients, Canonical());
    for (size_t i = 0; i < plan_->parameter_elements(); ++i) {
      parameters_[i] -= kLearningRate * gradients_[i];
    }
    for (const nn::ParameterInfo& info : plan_->buffers()) {
      std::vector<float> one(Elements(info));
      RETURN_IF_ERROR(plan_->Export(info, absl::MakeSpan(one)));
      result.buffers.insert(result.buffers.end(), one.begin(), one.end());
    }
    return result;
  }

 private:
  Rank(const nn::Graph& graph, const DistributedOptions& options, collectives::Communicator* world)
      : graph_(graph),
        options_(options),
        world_(world),
        reducer_(CommunicatorReducer::ByProcesses(world, &kernels::CpuDevice())) {}

  static size_t Elements(const nn::ParameterInfo& info) {
    size_t elements = 1;
    for (const int64_t dimension : info.shape) elements *= static_cast<size_t>(dimension);
    return elements;
  }

  void Bind() {
    parameters_ = kernels::MakeAlignedFloats(plan_->parameter_elements());
    gradients_ = kernels::MakeAlignedFloats(plan_->parameter_elements());
    buffers_ = kernels::MakeAlignedFloats(plan_->buffer_elements());
    plan_->Bind(parameters_.get(), gradients_.get(), buffers_.get());
    plan_->Initialize(/*seed=*/3);
    if (options_.synchronize_batch_norm) plan_->set_statistics_reducer(&reducer_);
  }

  void LoadBatch(uint32_t step, uint64_t first_sample, uint32_t samples) {
    const int64_t pixels = graph_.input.height * graph_.input.width * graph_.input.channels;
    for (uint32_t sample = 0; sample < samples; ++sample) {
      std::mt19937 random(static_cast<uint32_t>(1000 * step + first_sample + sample));
      std::normal_distribution<float> normal;
      for (int64_t i = 0; i < pixels; ++i) plan_->input()[sample * pixels + i] = normal(random);
      plan_->labels()[sample] = static_cast<int32_t>(random() % static_cast<uint32_t>(width_));
    }
  }

  absl::Status Sum(void* data, size_t count, collectives::DataType type) {
    return world_->AllReduce(data, data, count, type, collectives::ReduceOp::kSum)->Wait();
  }

  absl::StatusOr<std::vector<float>> Canonical() const {
    std::vector<float> all;
    for (const nn::ParameterInfo& info : plan_->parameters()) {
      std::vector<float> one(Elements(info));
      RETURN_IF_ERROR(plan_->ExportFrom(gradients_.get(), info, absl::MakeSpan(one)));
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  const nn::Graph& graph_;
  const DistributedOptions& options_;
  collectives::Communicator* const world_;
  CommunicatorReducer reducer_;
  kernels::AlignedFloats parameters_, gradients_, buffers_;
  std::unique_ptr<nn::Plan> plan_;
  int64_t width_ = 0;
  std::unique_ptr<Objective> objective_;
};

collectives::WorldOptions PlaceOf(const DistributedOptions& options, uint32_t rank,
                                  collectives::KeyStore* keys) {
  collectives::WorldOptions place;
  place.backend = options.backend;
  place.rank = rank;
  place.world_size = options.ranks;
  place.ranks_on_node = {options.ranks_per_node == 0 ? options.ranks : options.ranks_per_node};
  place.store = keys;
  place.interface_address = "127.0.0.1";
  return place;
}

void ExpectClose(const std::vector<float>& actual, const std::vector<float>& expected,
                 double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance) << what << " at " << i;
  }
}

}  // namespace

std::vector<DistributedStep> TrainDistributed(const nn::Graph& graph,
                                              const DistributedOptions& options) {
  collectives::FileKeyStore keys;
  std::vector<DistributedStep> steps(options.steps);
  const auto results =
      collectives::RunRankThreads(options.ranks, [&](uint32_t index) -> absl::Status {
        const collectives::WorldOptions place = PlaceOf(options, index, &keys);
        ASSIGN_OR_RETURN(const ProcessGroups groups, ProcessGroups::Create(place, {.local = true}));
        ASSIGN_OR_RETURN(const auto rank, Rank::Make(graph, options, groups));
        for (uint32_t step = 0; step < options.steps; ++step) {
          ASSIGN_OR_RETURN(DistributedStep done, rank->Step(step));
          if (index == 0) steps[step] = std::move(done);
        }
        return groups.world->Barrier()->Wait();
      });
  for (const std::string& result : results) EXPECT_EQ(result, "");
  return steps;
}

void ExpectSameSteps(const std::vector<DistributedStep>& actual,
                     const std::vector<DistributedStep>& expected, double tolerance,
                     const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step) {
    const std::string where = what + ", step " + std::to_string(step);
    EXPECT_NEAR(actual[step].loss_sum, expected[step].loss_sum,
                tolerance * std::max(1.0, std::abs(expected[step].loss_sum)))
        << where;
    EXPECT_EQ(actual[step].correct, expected[step].correct) << where;
    ExpectClose(actual[step].gradients, expected[step].gradients, tolerance, where + ", gradients");
    ExpectClose(actual[step].buffers, expected[step].buffers, tolerance, where + ", buffers");
  }
}

}  // namespace muster::train
