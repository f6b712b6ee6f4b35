#include "trainer/graph/testing/stages.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/device.h"
#include "trainer/graph/cut.h"

namespace muster::nn {
namespace {

constexpr double kSmoothing = 0.1;
constexpr uint32_t kGlobalSamples = 8;
constexpr MicroBatch kEvaluated = {.step = 77, .first_sample = 5, .samples = 4};

// A plan of the model or of one stage, with its arrays.
class StagePlan {
 public:
  StagePlan(const Graph& graph, const CompileOptions& options)
      : image_elements_(graph.input.height * graph.input.width * graph.input.channels) {
    auto plan = Compile(graph, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    const auto allocate = [&](size_t elements) {
      return *plan_->device().Allocate(std::max<size_t>(elements, 1) * sizeof(float));
    };
    parameters_ = allocate(plan_->parameter_elements());
    gradients_ = allocate(plan_->parameter_elements());
    buffers_ = allocate(plan_->buffer_elements());
    plan_->Bind(parameters_.as<float>(), options.training ? gradients_.as<float>() : nullptr,
                buffers_.as<float>());
    plan_->Initialize(5);
  }

  Plan& plan() { return *plan_; }

  // Fills those of images and labels that the stage uses.
  void Fill(const MicroBatch& batch) {
    std::mt19937 random(static_cast<uint32_t>(batch.step * 1000 + batch.first_sample));
    std::normal_distribution<float> normal;
    std::vector<float> pixels(batch.samples * image_elements_);
    for (float& pixel : pixels) pixel = normal(random);
    kernels::Device& device = plan_->device();
    if (plan_->input() != nullptr) {
      device.CopyToDevice(plan_->input(), pixels.data(), pixels.size() * sizeof(float));
    }
    if (plan_->logits(1).empty()) return;
    std::vector<int32_t> labels(batch.samples);
    for (int32_t& label : labels) label = static_cast<int32_t>(random() % plan_->logits(1).size());
    device.CopyToDevice(plan_->labels(), labels.data(), labels.size() * sizeof(int32_t));
  }

  void Forward(const MicroBatch& batch, bool training) {
    Fill(batch);
    plan_->Forward(batch.samples, training,
                   {.seed = 9, .step = batch.step, .first_sample = batch.first_sample});
  }
  void Loss(const MicroBatch& batch, Trained::OfMicroBatch& results) {
    if (plan_->logits(1).empty()) return;
    results.logits = Logits(batch.samples);
    results.loss_sum = plan_->Loss(batch.samples, kSmoothing, 1.0 / kGlobalSamples).loss_sum;
  }
  // Also checks the order in which gradients are reported ready.
  void Backward(const MicroBatch& batch, Trained::OfMicroBatch& results) {
    std::vector<size_t> ready;
    plan_->Backward(batch.samples, [&](size_t offset) { ready.push_back(offset); });
    EXPECT_TRUE(std::is_sorted(ready.rbegin(), ready.rend()));
    EXPECT_TRUE(!ready.empty() && ready.back() == 0) << "all gradients must be ready at the end";
    for (const ParameterInfo& info : plan_->parameters()) {
      std::vector<float>& values = results.gradients[info.name];
      values.resize(Elements(info));
      EXPECT_TRUE(plan_->ExportFrom(gradients_.as<float>(), info, absl::MakeSpan(values)).ok());
    }
  }

  std::vector<float> Logits(uint32_t samples) {
    std::vector<float> values(plan_->logits(samples).size());
    plan_->device().CopyToHost(values.data(), plan_->logits(samples).data(),
                               values.size() * sizeof(float));
    return values;
  }
  void AddBuffers(std::map<std::string, std::vector<float>>& buffers) {
    for (const ParameterInfo& info : plan_->buffers()) {
      std::vector<float>& values = buffers[info.name];
      values.resize(Elements(info));
      EXPECT_TRUE(plan_->Export(info, absl::MakeSpan(values)).ok());
    }
  }

 private:
  static size_t Elements(const ParameterInfo& info) {
    size_t elements = 1;
    for (const int64_t dimension : info.shape) elements *= static_cast<size_t>(dimension);
    return elements;
  }

  const size_t image_elements_;
  std::unique_ptr<Plan> plan_;
  kernels::DeviceMemory parameters_;
  kernels::DeviceMemory gradients_;
  kernels::DeviceMemory buffers_;
};

class Pipeline {
 public:
  Pipeline(const Graph& graph, const CompileOptions& options,
           const std::vector<MicroBatch>& micro_batches, const std::vector<StageUse>& uses)
      : micro_batches_(micro_batches), uses_(uses), next_(uses.size(), 0) {
    trained_.micro_batches.resize(micro_batches.size());
    for (size_t stage = 0; stage < uses.size(); ++stage) {
      const NodeId end =
          stage + 1 < uses.size() ? uses[stage + 1].begin : static_cast<NodeId>(graph.nodes.size());
      const auto stage_graph = CutGraph(graph, uses[stage].begin, end);
      EXPECT_TRUE(stage_graph.ok()) << stage_graph.status();
      CompileOptions own = options;
      own.in_flight_micro_batches = uses[stage].slots;
      plans_.push_back(std::make_unique<StagePlan>(*stage_graph, own));
      if (stage > 0) ExpectFit(plans_[stage - 1]->plan(), plans_[stage]->plan(), options.training);
    }
  }

  Trained Run() && {
    bool progress = true;
    while (progress) {
      progress = false;
      for (size_t stage = 0; stage < plans_.size(); ++stage) {
        if (next_[stage] < uses_[stage].order.size() && IsReady(stage)) {
          RunNext(stage);
          progress = true;
        }
      }
    }
    for (size_t stage = 0; stage < plans_.size(); ++stage) {
      EXPECT_EQ(next_[stage], uses_[stage].order.size()) << "stage " << stage << " is blocked";
      plans_[stage]->AddBuffers(trained_.buffers);
    }
    Evaluate();
    return std::move(trained_);
  }

 private:
  static void ExpectFit(Plan& before, Plan& after, bool training) {
    const auto outputs = before.boundary_outputs();
    const auto inputs = after.boundary_inputs();
    ASSERT_FALSE(inputs.empty());
    ASSERT_EQ(outputs.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(outputs[i].name, inputs[i].name);
      EXPECT_EQ(outputs[i].sample_bytes, inputs[i].sample_bytes);
      EXPECT_EQ(outputs[i].gradient == nullptr, inputs[i].gradient == nullptr);
      if (!training) EXPECT_EQ(inputs[i].gradient, nullptr);
    }
    EXPECT_EQ(after.input(), nullptr);
    EXPECT_TRUE(before.logits(1).empty());
    EXPECT_EQ(before.output_gradient(), nullptr);
  }

  StagePass Next(size_t stage) const { return uses_[stage].order[next_[stage]]; }

  // Whether the neighbouring stage has finished the pass that this stage depends on.
  bool IsReady(size_t stage) const {
    const StagePass pass = Next(stage);
    if (pass.forward ? stage == 0 : stage + 1 == plans_.size()) return true;
    const size_t from = pass.forward ? stage - 1 : stage + 1;
    const StageOrder& order = uses_[from].order;
    return std::any_of(order.begin(), order.begin() + next_[from], [&](const StagePass& done) {
      return done.forward == pass.forward && done.micro_batch == pass.micro_batch;
    });
  }

  Plan& Select(size_t stage, size_t micro_batch) {
    plans_[stage]->plan().SelectSlot(static_cast<uint32_t>(micro_batch % uses_[stage].slots));
    return plans_[stage]->plan();
  }

  // Copies activations from the previous stage to this one.
  void TakeValues(size_t stage, size_t micro_batch, uint32_t samples) {
    if (stage == 0) return;
    const auto from = Select(stage - 1, micro_batch).boundary_outputs();
    Plan& to = Select(stage, micro_batch);
    for (size_t i = 0; i < from.size(); ++i) {
      to.device().Copy(to.boundary_inputs()[i].data, from[i].data, samples * from[i].sample_bytes);
    }
  }
  // Copies gradients from this stage to the previous one, unless that was done already.
  void GiveGradients(size_t stage, size_t micro_batch) {
    const auto kept = kept_gradients_.find({stage, micro_batch % uses_[stage].slots});
    if (kept == kept_gradients_.end() || kept->second != micro_batch) return;
    kept_gradients_.erase(kept);
    const auto to = Select(stage - 1, micro_batch).boundary_outputs();
    Plan& from = Select(stage, micro_batch);
    for (size_t i = 0; i < to.size(); ++i) {
      if (to[i].gradient == nullptr) continue;
      from.device().Copy(to[i].gradient, from.boundary_inputs()[i].gradient,
                         micro_batches_[micro_batch].samples * to[i].sample_bytes);
    }
  }

  void RunNext(size_t stage) {
    const StagePass pass = Next(stage);
    const MicroBatch& batch = micro_batches_[pass.micro_batch];
    Trained::OfMicroBatch& results = trained_.micro_batches[pass.micro_batch];
    const auto place = std::make_pair(stage, pass.micro_batch % uses_[stage].slots);
    if (pass.forward) {
      TakeValues(stage, pass.micro_batch, batch.samples);
      if (const auto kept = kept_gradients_.find(place); kept != kept_gradients_.end()) {
        GiveGradients(stage, kept->second);
      }
      Select(stage, pass.micro_batch);
      plans_[stage]->Forward(batch, /*training=*/true);
      plans_[stage]->Loss(batch, results);
    } else {
      if (stage + 1 < plans_.size()) GiveGradients(stage + 1, pass.micro_batch);
      Select(stage, pass.micro_batch);
      plans_[stage]->Backward(batch, results);
      if (stage > 0) kept_gradients_[place] = pass.micro_batch;
      if (pass.micro_batch % 2 == 0) GiveGradients(stage, pass.micro_batch);
    }
    ++next_[stage];
  }

  void Evaluate() {
    for (size_t stage = 0; stage < plans_.size(); ++stage) {
      TakeValues(stage, 0, kEvaluated.samples);
      Select(stage, 0);
      plans_[stage]->Forward(kEvaluated, /*training=*/false);
    }
    trained_.evaluated = plans_.back()->Logits(kEvaluated.samples);
  }

  const std::vector<MicroBatch>& micro_batches_;
  const std::vector<StageUse>& uses_;
  std::vector<std::unique_ptr<StagePlan>> plans_;
  std::vector<size_t> next_;  // by stage: index in its order
  // By stage and slot: the micro-batch whose gradients the previous stage has not taken yet.
  std::map<std::pair<size_t, size_t>, size_t> kept_gradients_;
  Trained trained_;
};

void ExpectSameValues(const std::vector<float>& actual, const std::vector<float>& expected,
                      const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::memcmp(&actual[i], &expected[i], sizeof(float)), 0)
        << what << " at " << i << ": " << actual[i] << " for " << expected[i];
  }
}

void ExpectSameTensors(const std::map<std::string, std::vector<float>>& actual,
                       const std::map<std::string, std::vector<float>>& expected,
                       const std::string& what) {
  EXPECT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) {
    ASSERT_TRUE(actual.count(name) > 0) << what << name;
    ExpectSameValues(actual.at(name), values, what + name);
  }
}

}  // namespace

Trained TrainWhole(const Graph& graph, const CompileOptions& options,
                   const std::vector<MicroBatch>& micro_batches) {
  StagePlan whole(graph, options);
  Trained trained;
  for (const MicroBatch& batch : micro_batches) {
    Trained::OfMicroBatch& results = trained.micro_batches.emplace_back();
    whole.Forward(batch, /*training=*/true);
    whole.Loss(batch, results);
    whole.Backward(batch, results);
  }
  whole.AddBuffers(trained.buffers);
  whole.Forward(kEvaluated, /*training=*/false);
  trained.evaluated = whole.Logits(kEvaluated.samples);
  return trained;
}

StageOrder Sequential(size_t micro_batches) { return OneForwardOneBackward(micro_batches, 1); }

StageOrder AllForwardFirst(size_t micro_batches) {
  return OneForwardOneBackward(micro_batches, micro_batches);
}

StageOrder OneForwardOneBackward(size_t micro_batches, size_t ahead) {
  StageOrder order;
  for (size_t i = 0; i < micro_batches + ahead; ++i) {
    if (i >= ahead) order.push_back({.forward = false, .micro_batch = i - ahead});
    if (i < micro_batches) order.push_back({.forward = true, .micro_batch = i});
  }
  return order;
}

Trained TrainStages(const Graph& graph, const CompileOptions& options,
                    const std::vector<MicroBatch>& micro_batches,
                    const std::vector<StageUse>& uses) {
  return Pipeline(graph, options, micro_batches, uses).Run();
}

void ExpectSame(const Trained& actual, const Trained& expected, double evaluation_tolerance) {
  ASSERT_EQ(actual.micro_batches.size(), expected.micro_batches.size());
  for (size_t i = 0; i < expected.micro_batches.size(); ++i) {
    const Trained::OfMicroBatch& own = actual.micro_batches[i];
    const Trained::OfMicroBatch& other = expected.micro_batches[i];
    const std::string what = absl::StrCat("micro-batch ", i, ", ");
    EXPECT_EQ(own.loss_sum, other.loss_sum) << what;
    ExpectSameValues(own.logits, other.logits, what + "logits");
    ExpectSameTensors(own.gradients, other.gradients, what);
  }
  ExpectSameTensors(actual.buffers, expected.buffers, "");
  ASSERT_EQ(actual.evaluated.size(), expected.evaluated.size());
  double largest = 1e-3;
  for (const float value : expected.evaluated) largest = std::max<double>(largest, std::abs(value));
  for (size_t i = 0; i < expected.evaluated.size(); ++i) {
    ASSERT_NEAR(actual.evaluated[i], expected.evaluated[i], evaluation_tolerance * largest);
  }
}

}  // namespace muster::nn
