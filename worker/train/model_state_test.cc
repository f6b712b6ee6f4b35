#include "worker/train/model_state.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/data/testing.h"
#include "worker/nn/model.h"
#include "worker/train/testing.h"

namespace muster::train {
namespace {

std::unique_ptr<nn::Plan> CompileSmallCnn() {
  v1::ModelSpec spec;
  spec.set_name("small_cnn");
  const auto graph = nn::BuildModel(spec, {8, 8, 1}, 10);
  EXPECT_TRUE(graph.ok()) << graph.status();
  nn::CompileOptions options;
  options.max_batch = 2;
  auto plan = nn::Compile(*graph, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// A plan and its state, with weights, buffers and momentum that depend on the seed.
struct Model {
  explicit Model(uint64_t seed) : plan(CompileSmallCnn()), state(plan.get()) {
    plan->Initialize(seed);
    std::fill_n(state.momentum(), plan->parameter_elements(), static_cast<float>(seed));
    for (const nn::ParameterInfo& buffer : plan->buffers()) {
      const std::vector<float> values(buffer.shape[0], static_cast<float>(seed));
      EXPECT_TRUE(plan->Import(buffer, values).ok());
    }
  }
  std::unique_ptr<nn::Plan> plan;
  ModelState state;
};

std::vector<std::vector<float>> Values(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<float>> values;
  for (const Tensor& tensor : tensors) {
    if (const auto* floats = std::get_if<std::vector<float>>(&tensor.values)) {
      values.push_back(*floats);
    }
  }
  return values;
}

class ModelStateTest : public ::testing::Test {
 protected:
  std::string Write(const std::vector<Tensor>& tensors) {
    std::string bytes;
    EXPECT_TRUE(WriteSafetensors(tensors, [&](absl::Span<const uint8_t> more) {
                  bytes.append(more.begin(), more.end());
                  return absl::OkStatus();
                }).ok());
    const std::string path = directory_.path() + "/file";
    data::WriteFile(path, bytes);
    return path;
  }
  data::TemporaryDirectory directory_;
};

TEST_F(ModelStateTest, FilesRoundTrip) {
  Model from(1), to(2);
  ASSERT_NE(from.state.WeightsDigest(), to.state.WeightsDigest());
  ASSERT_TRUE(to.state.ImportModel(Write(from.state.ExportModel(7))).ok());
  ASSERT_TRUE(to.state.ImportMomentum(Write(from.state.ExportMomentum())).ok());
  EXPECT_EQ(to.state.WeightsDigest(), from.state.WeightsDigest());
  EXPECT_EQ(Values(to.state.ExportModel(7)), Values(from.state.ExportModel(7)));
  EXPECT_EQ(Values(to.state.ExportMomentum()), Values(from.state.ExportMomentum()));
}

TEST_F(ModelStateTest, BatchNormCountsItsSteps) {
  Model model(1);
  int counters = 0;
  for (const Tensor& tensor : model.state.ExportModel(7)) {
    if (!std::holds_alternative<std::vector<int64_t>>(tensor.values)) continue;
    ++counters;
    EXPECT_THAT(tensor.name, ::testing::MatchesRegex("[0-9]+.num_batches_tracked"));
    EXPECT_THAT(std::get<std::vector<int64_t>>(tensor.values), ::testing::ElementsAre(7));
    EXPECT_TRUE(tensor.shape.empty());
  }
  EXPECT_EQ(counters, 2);
}

TEST_F(ModelStateTest, AFileThatDoesNotFitIsRefused) {
  Model model(1);
  std::vector<Tensor> tensors = model.state.ExportModel(0);
  const Tensor first = tensors[0];
  tensors.erase(tensors.begin());
  absl::Status status = model.state.ImportModel(Write(tensors));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(first.name));
  tensors.push_back({first.name, {1}, std::vector<float>{1}});
  status = model.state.ImportModel(Write(tensors));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(first.name));
}

TEST_F(ModelStateTest, BroadcastGivesAllTheRootsState) {
  const auto communicators = MakeLoopbackGroup(3);
  std::vector<std::unique_ptr<Model>> models;
  std::vector<std::thread> threads;
  for (uint64_t rank = 0; rank < 3; ++rank) models.push_back(std::make_unique<Model>(rank + 1));
  for (uint32_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      ModelState& state = models[rank]->state;
      EXPECT_TRUE(state.Broadcast(*communicators[rank], 1, /*with_momentum=*/false).ok());
      EXPECT_TRUE(state.BroadcastBuffers(*communicators[rank], 2).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& model : models) {
    EXPECT_EQ(model->state.WeightsDigest(), models[1]->state.WeightsDigest());
    EXPECT_EQ(Values(model->state.ExportModel(0)), Values(models[1]->state.ExportModel(0)));
  }
  EXPECT_EQ(models[1]->state.WeightsDigest(), Model(2).state.WeightsDigest());
  EXPECT_EQ(models[0]->state.momentum()[0], 1.0f);  // not asked for
}

}  // namespace
}  // namespace muster::train
