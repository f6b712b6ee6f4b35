#include "trainer/optim/model_state.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/testing/limited_device.h"
#include "trainer/data/testing.h"
#include "trainer/loop/testing.h"
#include "trainer/models/model.h"

namespace muster::train {
namespace {

std::unique_ptr<nn::Plan> CompileSmallCnn(kernels::Device& device = kernels::CpuDevice()) {
  v1::ModelSpec spec;
  spec.set_name("small_cnn");
  const auto graph = nn::BuildModel(spec, {8, 8, 1}, 10);
  EXPECT_TRUE(graph.ok()) << graph.status();
  nn::CompileOptions options;
  options.max_batch = 2;
  options.device = &device;
  auto plan = nn::Compile(*graph, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

v1::OptimizerSpec SpecOf(const std::string& name) {
  v1::OptimizerSpec spec;
  spec.set_name(name);
  spec.set_momentum(name == "adamw" ? 0 : 0.9);
  spec.set_beta1(0.9);
  spec.set_beta2(0.999);
  spec.set_epsilon(1e-8);
  spec.set_trust_coefficient(0.001);
  return spec;
}

// Tensors of a snapshot of the state, with values of their own.
ModelTensors Export(const nn::Plan& plan, const ModelState& state, const Optimizer* optimizer,
                    uint64_t batches = 0) {
  StateSnapshot snapshot;
  snapshot.Begin(&plan, {}, batches);
  EXPECT_TRUE(state.CopyTo(snapshot).ok());
  if (optimizer != nullptr) {
    for (const OptimizerState& of : optimizer->states()) {
      EXPECT_TRUE(snapshot.CopyParameters(&ModelTensors::optimizer, of.values.get(), of.name).ok());
    }
  }
  ModelTensors tensors = snapshot.Convert();
  for (auto* const file : {&tensors.model, &tensors.optimizer, &tensors.average}) {
    for (Tensor& tensor : *file) {
      if (const auto* view = std::get_if<absl::Span<const float>>(&tensor.values)) {
        tensor.values = std::vector<float>(view->begin(), view->end());
      }
    }
  }
  return tensors;
}

// A plan and its state; weights, buffers, optimizer states and average depend on the seed.
struct Model {
  explicit Model(uint64_t seed, const std::string& optimizer_name = "sgd")
      : plan(CompileSmallCnn()),
        optimizer(*Optimizer::Create(SpecOf(optimizer_name), plan->parameters())),
        state(*ModelState::Create(plan.get(), optimizer.get(), /*averages=*/true)) {
    Fill(seed + 100);
    state.StartAverage();
    Fill(seed);
    float value = static_cast<float>(seed);
    for (const OptimizerState& of : optimizer->states()) {
      for (const nn::ParameterInfo& parameter : plan->parameters()) {
        size_t count = 1;
        for (const int64_t dimension : parameter.shape) count *= dimension;
        std::vector<float> values(count);
        for (float& v : values) v = value += 0.25f;
        EXPECT_TRUE(plan->ImportInto(of.values.get(), parameter, values).ok());
      }
    }
  }
  std::vector<Tensor> ExportModel(uint64_t batches) const {
    return Export(*plan, state, optimizer.get(), batches).model;
  }
  std::vector<Tensor> ExportOptimizer() const {
    return Export(*plan, state, optimizer.get()).optimizer;
  }
  std::vector<Tensor> ExportAverage(uint64_t batches) const {
    return Export(*plan, state, optimizer.get(), batches).average;
  }
  void Fill(uint64_t seed) {
    plan->Initialize(seed);
    for (const nn::ParameterInfo& buffer : plan->buffers()) {
      const std::vector<float> values(buffer.shape[0], static_cast<float>(seed));
      EXPECT_TRUE(plan->Import(buffer, values).ok());
    }
  }
  std::unique_ptr<nn::Plan> plan;
  std::unique_ptr<Optimizer> optimizer;
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

// Values of the parameters and buffers that the plan is bound to.
std::vector<std::vector<float>> BoundValues(const nn::Plan& plan) {
  std::vector<std::vector<float>> bound;
  for (const auto& infos : {plan.parameters(), plan.buffers()}) {
    for (const nn::ParameterInfo& info : infos) {
      size_t count = 1;
      for (const int64_t dimension : info.shape) count *= dimension;
      EXPECT_TRUE(plan.Export(info, absl::MakeSpan(bound.emplace_back(count))).ok());
    }
  }
  return bound;
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

TEST_F(ModelStateTest, ExportsAndImportsFiles) {
  for (const char* optimizer : {"sgd", "adamw", "lars"}) {
    Model from(1, optimizer), to(2, optimizer);
    ASSERT_NE(from.state.WeightsDigest(), to.state.WeightsDigest());
    ASSERT_NE(Values(from.ExportOptimizer()), Values(to.ExportOptimizer()));
    ASSERT_NE(Values(from.ExportAverage(7)), Values(from.ExportModel(7)));
    ASSERT_TRUE(to.state.ImportModel(Write(from.ExportModel(7))).ok());
    ASSERT_TRUE(to.state.ImportOptimizer(Write(from.ExportOptimizer())).ok());
    ASSERT_TRUE(to.state.ImportAverage(Write(from.ExportAverage(7))).ok());
    EXPECT_EQ(to.state.WeightsDigest(), from.state.WeightsDigest());
    EXPECT_EQ(Values(to.ExportModel(7)), Values(from.ExportModel(7)));
    EXPECT_EQ(Values(to.ExportOptimizer()), Values(from.ExportOptimizer()));
    EXPECT_EQ(Values(to.ExportAverage(7)), Values(from.ExportAverage(7)));
  }
}

TEST_F(ModelStateTest, NamesOptimizerStates) {
  Model model(1, "adamw");
  const std::vector<Tensor> tensors = model.ExportOptimizer();
  const size_t parameters = model.plan->parameters().size();
  ASSERT_EQ(tensors.size(), 2 * parameters);
  EXPECT_EQ(tensors[0].name, "0.weight.exp_avg");
  EXPECT_EQ(tensors[parameters].name, "0.weight.exp_avg_sq");
  EXPECT_EQ(tensors[0].shape, model.plan->parameters()[0].shape);
}

// The format of older files, which had only momentum.
TEST_F(ModelStateTest, ReadsPlainNamesAsMomentum) {
  Model from(1), to(2);
  std::vector<Tensor> tensors = from.ExportOptimizer();
  for (Tensor& tensor : tensors) {
    const absl::string_view name = tensor.name;
    tensor.name = std::string(absl::StripSuffix(name, ".momentum"));
  }
  ASSERT_EQ(tensors[0].name, "0.weight");
  ASSERT_TRUE(to.state.ImportOptimizer(Write(tensors)).ok());
  EXPECT_EQ(Values(to.ExportOptimizer()), Values(from.ExportOptimizer()));
}

TEST_F(ModelStateTest, RejectsIncompleteOptimizerState) {
  Model model(1);
  std::vector<Tensor> tensors = model.ExportOptimizer();
  tensors.pop_back();
  const absl::Status status = model.state.ImportOptimizer(Write(tensors));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(model.state.ImportOptimizer(Write({})).ok());
  for (const std::vector<float>& values : Values(model.ExportOptimizer())) {
    EXPECT_THAT(values, ::testing::Each(0.0f));
  }
}

TEST_F(ModelStateTest, WithAverageBindsAverage) {
  Model model(1);
  const auto model_values = Values(model.ExportModel(0));
  const auto average = Values(model.ExportAverage(0));
  const std::string digest = model.state.WeightsDigest();
  const absl::Status status = model.state.WithAverage([&] {
    EXPECT_EQ(BoundValues(*model.plan), average);
    EXPECT_EQ(model.state.WeightsDigest(), digest);  // still the digest of the model
    return absl::NotFoundError("error of the work");
  });
  EXPECT_EQ(status.message(), "error of the work");
  EXPECT_EQ(Values(model.ExportModel(0)), model_values);
  // Continues from the previous average.
  kernels::UpdateScalars scalars{.average_weight = 0.5f};
  model.state.UpdateAverage(&scalars);
  const auto updated = Values(model.ExportAverage(0));
  EXPECT_FLOAT_EQ(updated[0][0], (average[0][0] + model_values[0][0]) / 2);
  scalars.average_weight = 1;
  model.state.UpdateAverage(&scalars);
  EXPECT_EQ(Values(model.ExportAverage(0)), model_values);
}

TEST_F(ModelStateTest, WithAverageUsesModelIfThereIsNoAverage) {
  const auto plan = CompileSmallCnn();
  ModelState state = *ModelState::Create(plan.get(), nullptr);
  plan->Initialize(1);
  EXPECT_TRUE(Export(*plan, state, nullptr).average.empty());
  const auto values = BoundValues(*plan);
  EXPECT_EQ(Values(Export(*plan, state, nullptr).model), values);
  EXPECT_TRUE(state
                  .WithAverage([&] {
                    EXPECT_EQ(BoundValues(*plan), values);
                    return absl::OkStatus();
                  })
                  .ok());
}

TEST_F(ModelStateTest, ExportsNumberOfBatchNormBatches) {
  Model model(1);
  int counters = 0;
  for (const Tensor& tensor : model.ExportModel(7)) {
    if (!std::holds_alternative<std::vector<int64_t>>(tensor.values)) continue;
    ++counters;
    EXPECT_THAT(tensor.name, ::testing::MatchesRegex("[0-9]+.num_batches_tracked"));
    EXPECT_THAT(std::get<std::vector<int64_t>>(tensor.values), ::testing::ElementsAre(7));
    EXPECT_TRUE(tensor.shape.empty());
  }
  EXPECT_EQ(counters, 2);
}

TEST_F(ModelStateTest, RejectsFileOfAnotherModel) {
  Model model(1);
  std::vector<Tensor> tensors = model.ExportModel(0);
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

TEST_F(ModelStateTest, NamesMissingAndUnknownTensors) {
  Model model(1);
  std::vector<Tensor> tensors = model.ExportModel(0);
  tensors[0].name = "module." + tensors[0].name;
  const absl::Status status = model.state.ImportModel(Write(tensors));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("has no tensor 0.weight"));
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("does not have: module.0.weight"));
}

TEST_F(ModelStateTest, InitializesFromPartOfFile) {
  Model from(1), to(2);
  std::vector<Tensor> tensors = from.ExportModel(0);
  const auto last = std::find_if(tensors.begin(), tensors.end(),
                                 [](const Tensor& tensor) { return tensor.name == "9.weight"; });
  ASSERT_NE(last, tensors.end());
  const auto expected = Values(to.ExportModel(0))[last - tensors.begin()];
  // A classifier with another number of classes; later its bias is removed.
  last->shape = {3, 1};
  last->values = std::vector<float>{1, 2, 3};
  const std::string path = Write(tensors);
  const absl::Status status = to.state.InitializeFrom(path, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* part :
       {"9.weight is F32 [3, 1]", "expected floats [128,", "train.init_exclude"}) {
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(part));
  }
  tensors.erase(last + 1);
  ASSERT_TRUE(to.state.InitializeFrom(Write(tensors), {"nothing", "9."}).ok());
  const std::vector<Tensor> result = to.ExportModel(0);
  EXPECT_EQ(Values(result)[0], Values(tensors)[0]);
  for (const Tensor& tensor : result) {
    if (tensor.name == "9.weight") {
      EXPECT_EQ(std::get<std::vector<float>>(tensor.values), expected);
    }
  }
}

TEST_F(ModelStateTest, BroadcastsStateOfRoot) {
  for (const ModelState::BroadcastOptions& options : {ModelState::BroadcastOptions{},
                                                      {.resuming = true},
                                                      {.resuming = true, .canonical = true}}) {
    const auto communicators = MakeLoopbackGroup(3);
    std::vector<std::unique_ptr<Model>> models;
    std::vector<std::thread> threads;
    for (uint64_t rank = 0; rank < 3; ++rank) {
      models.push_back(std::make_unique<Model>(rank + 1, "adamw"));
    }
    for (uint32_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        ModelState& state = models[rank]->state;
        EXPECT_TRUE(state.Broadcast(*communicators[rank], 1, options).ok());
        EXPECT_TRUE(state.BroadcastBuffers(*communicators[rank], 2).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    Model root(2, "adamw");
    for (uint64_t rank = 0; rank < 3; ++rank) {
      ModelState& state = models[rank]->state;
      Model own(options.resuming ? 2 : rank + 1, "adamw");
      EXPECT_EQ(state.WeightsDigest(), root.state.WeightsDigest());
      const Model& model = *models[rank];
      EXPECT_EQ(Values(model.ExportModel(0)), Values(root.ExportModel(0)));
      EXPECT_EQ(Values(model.ExportOptimizer()), Values(own.ExportOptimizer()));
      EXPECT_EQ(Values(model.ExportAverage(0)), Values(own.ExportAverage(0)));
    }
  }
}

TEST_F(ModelStateTest, ReturnsExhaustionOfDeviceMemory) {
  kernels::LimitedDevice device;
  const auto plan = CompileSmallCnn(device);
  for (const bool averages : {false, true}) {
    const auto create = [&] { return ModelState::Create(plan.get(), nullptr, averages).status(); };
    EXPECT_EQ(AllocationsNeeded(device, create), averages ? 4 : 2);
  }
  ModelState state = *ModelState::Create(plan.get(), nullptr);
  const auto round = [&] { return state.RoundParameters(kernels::DataType::kBfloat16); };
  EXPECT_EQ(AllocationsNeeded(device, round), 1);
}

}  // namespace
}  // namespace muster::train
