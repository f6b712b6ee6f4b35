// Compares pipeline stages, which are threads of one process, with a plan of the whole model.
#include "trainer/strategy/pipeline/pipeline_stage.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/guarded_device.h"
#include "trainer/graph/cut.h"
#include "trainer/strategy/pipeline/stage_cuts.h"

namespace muster::pipeline {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr uint32_t kSamples = 10;
constexpr int64_t kClasses = 5;
constexpr nn::ImageShape kImage = {8, 8, 3};
constexpr double kScale = 1.0 / kSamples;

// Two residual blocks, so that some cuts are crossed by two tensors.
nn::Graph Residual() {
  nn::Graph graph;
  graph.input = kImage;
  const nn::Conv2d conv{.out_channels = 8, .kernel = 3, .padding = 1};
  nn::NodeId at = graph.Add("stem", conv, {nn::kInput});
  for (const std::string block : {"a", "b"}) {
    const nn::NodeId branch = graph.Add(block + ".conv", conv, {at});
    const nn::NodeId relu = graph.Add(block + ".relu", nn::Relu(), {branch});
    const nn::NodeId dropout = graph.Add(block + ".dropout", nn::Dropout{0.3}, {relu});
    at = graph.Add(block + ".add", nn::Add(), {dropout, at});
  }
  at = graph.Add("pool", nn::AdaptiveAvgPool2d(), {at});
  at = graph.Add("flatten", nn::Flatten(), {at});
  graph.Add("fc", nn::Linear{.out_features = kClasses}, {at});
  return graph;
}

struct Outcome {
  nn::LossResult loss;
  nn::LossResult evaluated;
  std::map<std::string, std::vector<float>> gradients;
};

// A plan with its arrays.
class Model {
 public:
  explicit Model(nn::Plan* plan)
      : plan_(*plan),
        parameters_(*plan->device().Allocate(plan->parameter_elements() * sizeof(float))),
        gradients_(*plan->device().Allocate(plan->parameter_elements() * sizeof(float))),
        buffers_(*plan->device().Allocate(plan->buffer_elements() * sizeof(float))),
        loss_(*plan->device().Allocate(sizeof(nn::LossResult))) {
    plan->Bind(parameters_.as<float>(), gradients_.as<float>(), buffers_.as<float>());
    plan->Initialize(7);
  }

  // Runs the whole model.
  absl::Status Run(uint32_t samples, Outcome& outcome) {
    Load(plan_.input(), plan_.labels(), samples);
    plan_.Forward(samples, /*training=*/true, kContext);
    plan_.QueueLoss(samples, {.scale = kScale}, loss_.as<nn::LossResult>());
    plan_.Backward(samples, nullptr);
    RETURN_IF_ERROR(ReadStep(outcome));
    plan_.Forward(samples, /*training=*/false);
    outcome.evaluated = plan_.Loss(samples, 0, 0);
    return absl::OkStatus();
  }

  // Runs a stage whose plan this is.
  absl::Status Run(PipelineStage& stage, uint32_t samples, Outcome& outcome) {
    Load(stage.input(), stage.labels(), samples);
    const auto loss_of = [](double scale) {
      return [scale](nn::Plan& plan, uint32_t samples, nn::LossResult* result) {
        plan.QueueLoss(samples, {.scale = scale}, result);
        return absl::OkStatus();
      };
    };
    size_t ready = plan_.parameter_elements() + 1;
    const uint32_t micro_batches = stage.micro_batches();
    ASSIGN_OR_RETURN(const kernels::DeviceMemory losses,
                     plan_.device().Allocate(micro_batches * sizeof(nn::LossResult)));
    stage.BeginStep(samples, kContext);
    RETURN_IF_ERROR(stage.Train(
        loss_of(kScale), gradients_.as<float>(),
        [&](size_t offset) {
          EXPECT_LT(offset, ready);
          ready = offset;
        },
        losses.as<nn::LossResult>()));
    EXPECT_EQ(ready, 0u);
    RETURN_IF_ERROR(ReadStep(outcome));
    std::vector<nn::LossResult> read(micro_batches);
    plan_.device().CopyToHost(read.data(), losses.data(), losses.bytes());
    outcome.loss = {};
    for (const nn::LossResult& loss : read) {
      outcome.loss.loss_sum += loss.loss_sum;
      outcome.loss.correct += loss.correct;
    }
    ASSIGN_OR_RETURN(outcome.evaluated, stage.Evaluate(samples, loss_of(0)));
    return absl::OkStatus();
  }

 private:
  static constexpr nn::StepContext kContext = {.seed = 3, .step = 4, .first_sample = 20};

  absl::Status ReadStep(Outcome& outcome) const {
    plan_.device().CopyToHost(&outcome.loss, loss_.data(), sizeof(outcome.loss));
    for (const nn::ParameterInfo& parameter : plan_.parameters()) {
      size_t count = 1;
      for (const int64_t dimension : parameter.shape) count *= static_cast<size_t>(dimension);
      std::vector<float>& values = outcome.gradients[parameter.name];
      values.resize(count);
      RETURN_IF_ERROR(plan_.ExportFrom(gradients_.as<float>(), parameter, absl::MakeSpan(values)));
    }
    return absl::OkStatus();
  }

  void Load(float* input, int32_t* to_labels, uint32_t samples) const {
    const auto elements = static_cast<size_t>(kImage.height * kImage.width * kImage.channels);
    std::vector<float> pixels(samples * elements);
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = std::sin(static_cast<float>(i * 37 % 1001));
    }
    std::vector<int32_t> labels(samples);
    for (uint32_t sample = 0; sample < samples; ++sample) {
      labels[sample] = static_cast<int32_t>(sample % kClasses);
    }
    if (input != nullptr) {
      plan_.device().CopyToDevice(input, pixels.data(), pixels.size() * sizeof(float));
    }
    plan_.device().CopyToDevice(to_labels, labels.data(), samples * sizeof(int32_t));
  }

  nn::Plan& plan_;
  const kernels::DeviceMemory parameters_, gradients_, buffers_, loss_;
};

Outcome RunWholeModel(uint32_t samples) {
  Outcome outcome;
  const auto plan = nn::Compile(Residual(), {.max_batch = kSamples});
  EXPECT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(Model(plan->get()).Run(samples, outcome).ok());
  return outcome;
}

struct Config {
  std::vector<std::string> cuts;
  Schedule schedule = Schedule::kOneForwardOneBackward;
  uint32_t micro_batches = 4;
  uint32_t samples = kSamples;

  uint32_t stages() const { return static_cast<uint32_t>(cuts.size() + 1); }
};

struct RankOutcome {
  Outcome outcome;
  uint32_t slots = 0;
  size_t activation_bytes = 0;
};

absl::StatusOr<RankOutcome> RunRank(const Config& config, uint32_t rank, const std::string& backend,
                                    kernels::Device& device, collectives::KeyStore* keys) {
  const nn::Graph graph = Residual();
  collectives::WorldOptions options;
  options.backend = backend;
  options.rank = rank;
  options.world_size = config.stages();
  options.ranks_on_node = {config.stages()};
  options.store = keys;
  ASSIGN_OR_RETURN(const ProcessGroups groups,
                   ProcessGroups::Create(options, {.pipeline_stages = config.stages()}));
  PipelineOptions pipeline{.schedule = config.schedule, .micro_batches = config.micro_batches};
  ASSIGN_OR_RETURN(pipeline.place, train::PipelinePlaceOf(rank, config.stages(), config.stages()));
  const nn::CompileOptions compiling{.max_batch = kSamples, .device = &device};
  ASSIGN_OR_RETURN(const std::vector<nn::NodeId> begins,
                   StageBegins(graph, pipeline.place, config.cuts, compiling, *groups.world));
  ASSIGN_OR_RETURN(const auto stage, PipelineStage::Create(graph, begins[rank], begins[rank + 1],
                                                           compiling, pipeline, groups));
  Model model(&stage->plan());
  // Runs twice to check that no state leaks into the next step.
  RankOutcome first, own;
  RETURN_IF_ERROR(model.Run(*stage, config.samples, first.outcome));
  RETURN_IF_ERROR(model.Run(*stage, config.samples, own.outcome));
  EXPECT_EQ(own.outcome.gradients, first.outcome.gradients);
  EXPECT_GT(stage->times().span, stage->times().waiting);
  own.slots = stage->in_flight_micro_batches();
  own.activation_bytes = stage->activation_bytes();
  return own;
}

struct Staged {
  Outcome outcome;                 // combined over all stages
  std::vector<std::string> ranks;  // status by rank; empty: OK
  std::vector<uint32_t> slots;
  std::vector<size_t> activation_bytes;
};

Staged RunStages(const Config& config) {
  Staged staged;
  std::vector<RankOutcome> ranks(config.stages());
  collectives::FileKeyStore keys;
  staged.ranks = collectives::RunRankThreads(config.stages(), [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(ranks[rank], RunRank(config, rank, "loopback", kernels::CpuDevice(), &keys));
    return absl::OkStatus();
  });
  for (const RankOutcome& rank : ranks) {
    staged.slots.push_back(rank.slots);
    staged.activation_bytes.push_back(rank.activation_bytes);
    staged.outcome.loss.loss_sum += rank.outcome.loss.loss_sum;
    staged.outcome.loss.correct += rank.outcome.loss.correct;
    staged.outcome.evaluated.loss_sum += rank.outcome.evaluated.loss_sum;
    staged.outcome.gradients.insert(rank.outcome.gradients.begin(), rank.outcome.gradients.end());
  }
  return staged;
}

void ExpectSame(const Outcome& actual, const Outcome& expected, const std::string& what) {
  EXPECT_NEAR(actual.loss.loss_sum, expected.loss.loss_sum, 1e-5) << what;
  EXPECT_EQ(actual.loss.correct, expected.loss.correct) << what;
  EXPECT_NEAR(actual.evaluated.loss_sum, expected.evaluated.loss_sum, 1e-5) << what;
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size()) << what;
  for (const auto& [name, values] : expected.gradients) {
    const std::vector<float>& found = actual.gradients.at(name);
    ASSERT_EQ(found.size(), values.size()) << what << " " << name;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(found[i], values[i], 1e-5) << what << " " << name << " at " << i;
    }
  }
}

TEST(PipelineStageTest, EqualsWholeModelInEverySchedule) {
  const Outcome whole = RunWholeModel(kSamples);
  for (const Schedule schedule :
       {Schedule::kSequential, Schedule::kGpipe, Schedule::kOneForwardOneBackward}) {
    for (const uint32_t micro_batches : {1u, 3u, 4u}) {
      const Staged staged = RunStages(
          {.cuts = {"a.conv", "b.conv"}, .schedule = schedule, .micro_batches = micro_batches});
      EXPECT_THAT(staged.ranks, Each(""));
      ExpectSame(staged.outcome, whole,
                 absl::StrCat(ScheduleName(schedule), " of ", micro_batches));
    }
  }
}

TEST(PipelineStageTest, EqualsWholeModelAtEveryCut) {
  const nn::Graph graph = Residual();
  const Outcome whole = RunWholeModel(kSamples);
  const std::vector<nn::NodeId> points = nn::CutPoints(graph);
  EXPECT_GT(points.size(), 4u);
  for (const nn::NodeId point : points) {
    const std::string& layer = graph.nodes[static_cast<size_t>(point)].name;
    const Staged staged = RunStages({.cuts = {layer}});
    EXPECT_THAT(staged.ranks, Each("")) << layer;
    ExpectSame(staged.outcome, whole, layer);
  }
}

// As in the last batch of an epoch, or with fewer samples than micro-batches.
TEST(PipelineStageTest, HandlesPartialBatches) {
  for (const uint32_t samples : {1u, 3u, 7u}) {
    const Staged staged = RunStages({.cuts = {"a.add"}, .samples = samples});
    EXPECT_THAT(staged.ranks, Each(""));
    ExpectSame(staged.outcome, RunWholeModel(samples), absl::StrCat(samples, " samples"));
  }
}

// The guarded device serves one process, so ranks are processes and report mismatches as errors.
TEST(PipelineStageTest, RunsInDeviceMemory) {
  const Outcome whole = RunWholeModel(kSamples);
  const Config config = {.cuts = {"a.conv", "b.add"}};
  collectives::FileKeyStore keys;
  const auto results = collectives::RunRankProcesses(3, [&](uint32_t rank) -> absl::Status {
    ASSIGN_OR_RETURN(const RankOutcome own,
                     RunRank(config, rank, "shm", kernels::GuardedDevice(), &keys));
    for (const auto& [name, values] : own.outcome.gradients) {
      const std::vector<float>& expected = whole.gradients.at(name);
      for (size_t i = 0; i < values.size(); ++i) {
        if (std::abs(values[i] - expected[i]) > 1e-5) return absl::InternalError(name);
      }
    }
    const bool is_last = rank + 1 == config.stages();
    const double loss = is_last ? whole.loss.loss_sum : 0;
    if (std::abs(own.outcome.loss.loss_sum - loss) < 1e-5) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("loss ", own.outcome.loss.loss_sum));
  });
  EXPECT_THAT(results, Each(""));
}

TEST(PipelineStageTest, AllocatesSlotsThatScheduleNeeds) {
  const std::vector<std::string> cuts = {"a.conv", "b.conv"};
  const Staged alternating = RunStages({.cuts = cuts, .micro_batches = 10});
  EXPECT_THAT(alternating.slots, testing::ElementsAre(3, 3, 2));
  const Staged gpipe = RunStages({.cuts = cuts, .schedule = Schedule::kGpipe, .micro_batches = 10});
  EXPECT_THAT(gpipe.slots, testing::ElementsAre(10, 10, 10));
  // The first stage has the most micro-batches in flight.
  EXPECT_EQ(alternating.activation_bytes[0] * 10, gpipe.activation_bytes[0] * 3);
  const Staged sequential =
      RunStages({.cuts = cuts, .schedule = Schedule::kSequential, .micro_batches = 10});
  EXPECT_THAT(sequential.slots, testing::ElementsAre(1, 1, 1));
}

TEST(StageCutsTest, MeasuredCutsAreEqualOnAllRanks) {
  const nn::Graph graph = Residual();
  collectives::FileKeyStore keys;
  std::vector<std::vector<nn::NodeId>> begins(3);
  const auto results = collectives::RunRankThreads(3, [&](uint32_t rank) -> absl::Status {
    collectives::WorldOptions options;
    options.backend = "loopback";
    options.rank = rank;
    options.world_size = 3;
    options.ranks_on_node = {3};
    options.store = &keys;
    ASSIGN_OR_RETURN(const ProcessGroups groups, ProcessGroups::Create(options, {}));
    ASSIGN_OR_RETURN(const PipelinePlace place, train::PipelinePlaceOf(rank, 3, 3));
    ASSIGN_OR_RETURN(begins[rank], StageBegins(graph, place, {}, {.max_batch = 4}, *groups.world));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, Each(""));
  ASSERT_EQ(begins[0].size(), 4u);
  EXPECT_EQ(begins[0].front(), 0);
  EXPECT_EQ(begins[0].back(), static_cast<nn::NodeId>(graph.nodes.size()));
  for (size_t i = 1; i < begins[0].size(); ++i) EXPECT_LT(begins[0][i - 1], begins[0][i]);
  EXPECT_EQ(begins[1], begins[0]);
  EXPECT_EQ(begins[2], begins[0]);
}

TEST(StageCutsTest, RejectsInvalidCuts) {
  const nn::Graph graph = Residual();
  EXPECT_TRUE(CheckCuts(graph, 3, {"a.conv", "fc"}).ok());
  EXPECT_THAT(CheckCuts(graph, 3, {"b.conv", "a.conv"}).message(),
              HasSubstr("does not come after"));
  EXPECT_THAT(CheckCuts(graph, 2, {"c.conv"}).message(), HasSubstr("c.conv"));
  EXPECT_THAT(CheckCuts(graph, 100, {}).message(), HasSubstr("100 stages"));
}

}  // namespace
}  // namespace muster::pipeline
