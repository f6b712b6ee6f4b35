#include "worker/nn/plan.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/sgd.h"
#include "worker/nn/model.h"

// Counts allocations, except oneDNN's own: it copies the argument list of every execution.
namespace {
std::atomic<int64_t> allocations{0};

void* CountedAllocate(size_t bytes, size_t alignment, const void* caller) {
  Dl_info info{};
  const bool by_onednn = dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
                         std::strstr(info.dli_fname, "libdnnl") != nullptr;
  if (!by_onednn) allocations.fetch_add(1, std::memory_order_relaxed);
  void* const memory = alignment == 0
                           ? std::malloc(std::max<size_t>(bytes, 1))
                           : std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}
}  // namespace

void* operator new(size_t bytes) { return CountedAllocate(bytes, 0, __builtin_return_address(0)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return CountedAllocate(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace muster::nn {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int64_t kClasses = 7;

struct Free {
  void operator()(float* p) const { std::free(p); }
};
using Array = std::unique_ptr<float, Free>;

Array Allocate(size_t elements, float value) {
  Array array(static_cast<float*>(std::aligned_alloc(64, (elements / 16 + 1) * 64)));
  std::fill_n(array.get(), elements, value);
  return array;
}

size_t CanonicalElements(const ParameterInfo& info) {
  size_t elements = 1;
  for (const int64_t dimension : info.shape) elements *= static_cast<size_t>(dimension);
  return elements;
}

// A plan with its arrays, and a batch that is a function of (step, global row).
class Trainer {
 public:
  Trainer(const Graph& graph, uint32_t max_batch, bool reference = false)
      : image_elements_(graph.input.height * graph.input.width * graph.input.channels) {
    auto made = Compile(graph, {.max_batch = max_batch, .reference = reference});
    EXPECT_TRUE(made.ok()) << made.status();
    plan_ = *std::move(made);
    parameters_ = Allocate(plan_->parameter_elements(), 0);
    gradients_ = Allocate(plan_->parameter_elements(), std::nanf(""));
    momentum_ = Allocate(plan_->parameter_elements(), 0);
    buffers_ = Allocate(plan_->buffer_elements(), 0);
    plan_->Bind(parameters_.get(), gradients_.get(), buffers_.get());
    plan_->Initialize(5);
  }

  Plan& plan() { return *plan_; }
  float* parameters() { return parameters_.get(); }
  float* gradients() { return gradients_.get(); }
  size_t elements() const { return plan_->parameter_elements(); }

  void Fill(uint64_t step, uint64_t first_row, uint32_t rows) {
    for (uint32_t row = 0; row < rows; ++row) {
      std::mt19937 random(static_cast<uint32_t>(step * 100003 + first_row + row));
      std::normal_distribution<float> normal;
      const int32_t label = static_cast<int32_t>(random() % kClasses);
      plan_->labels()[row] = label;
      // Something to learn: the label shifts the image.
      for (int64_t i = 0; i < image_elements_; ++i) {
        plan_->input()[row * image_elements_ + i] =
            normal(random) + (i % kClasses == label ? 1.0f : 0.0f);
      }
    }
  }

  LossResult Gradients(uint64_t step, uint64_t first_row, uint32_t rows, uint32_t global_rows,
                       double smoothing = 0.1) {
    Fill(step, first_row, rows);
    plan_->Forward(rows, true, {.seed = 9, .step = step, .first_row = first_row});
    const LossResult result = plan_->Loss(rows, smoothing, 1.0f / static_cast<float>(global_rows));
    plan_->Backward(rows, nullptr);
    return result;
  }

  void Update() {
    kernels::SgdStep({.learning_rate = 0.05f, .momentum = 0.9f, .weight_decay = 1e-3f},
                     parameters_.get(), momentum_.get(), gradients_.get(), elements());
  }

  std::vector<float> Exported(const float* flat, const ParameterInfo& info) const {
    std::vector<float> values(CanonicalElements(info));
    EXPECT_TRUE(plan_->ExportFrom(flat, info, absl::MakeSpan(values)).ok());
    return values;
  }
  std::vector<float> Gradient(const ParameterInfo& info) const {
    return Exported(gradients_.get(), info);
  }

 private:
  const int64_t image_elements_;
  std::unique_ptr<Plan> plan_;
  Array parameters_;
  Array gradients_;
  Array momentum_;
  Array buffers_;
};

Graph Model(const std::string& name, const ImageShape& input, bool batch_norm, double dropout) {
  v1::ModelSpec spec;
  spec.set_name(name);
  spec.set_batch_norm(batch_norm);
  spec.set_dropout(dropout);
  return *BuildModel(spec, input, kClasses);
}

// Every layer in places where nothing fuses, odd sizes and channels that fill no vector.
Graph Unfused() {
  Graph graph{{11, 13, 3}, {}};
  NodeId last = kInput;
  const auto add = [&](const char* name, Layer layer) {
    last = graph.Add(name, std::move(layer), {last});
  };
  add("relu0", Relu{});
  add("conv1", Conv2d{10, 3, 2, 1});
  add("bn1", BatchNorm2d{});
  add("pool1", MaxPool2d{});
  add("conv2", Conv2d{13, 2, 1, 0});
  add("bn2", BatchNorm2d{});
  add("relu2", Relu{});
  add("drop2", Dropout{0.2});
  add("relu3", Relu{});
  add("flatten", Flatten{});
  add("drop3", Dropout{0.3});
  add("fc1", Linear{kClasses});
  return graph;
}

// Only ReLUs fused into convolutions, and batch norm on the input.
Graph ReluConvolutions() {
  Graph graph{{6, 6, 5}, {}};
  NodeId last = graph.Add("bn0", BatchNorm2d{}, {kInput});
  last = graph.Add("conv1", Conv2d{16, 3, 1, 1}, {last});
  last = graph.Add("relu1", Relu{}, {last});
  last = graph.Add("conv2", Conv2d{24, 3, 1, 1}, {last});
  last = graph.Add("relu2", Relu{}, {last});
  last = graph.Add("bn2", BatchNorm2d{}, {last});
  last = graph.Add("flatten", Flatten{}, {last});
  graph.Add("fc", Linear{kClasses}, {last});
  return graph;
}

struct Case {
  const char* name;
  Graph graph;
};
void PrintTo(const Case& value, std::ostream* os) { *os << value.name; }

std::vector<Case> Cases() {
  return {
      {"small_cnn", Model("small_cnn", {12, 12, 1}, true, 0)},
      {"small_cnn_odd", Model("small_cnn", {9, 15, 3}, true, 0.3)},
      {"small_cnn_without_batch_norm", Model("small_cnn", {10, 10, 2}, false, 0)},
      {"mlp", Model("mlp", {7, 5, 3}, false, 0.5)},
      {"unfused", Unfused()},
      {"relu_convolutions", ReluConvolutions()},
  };
}

class PlanTest : public testing::TestWithParam<Case> {
 protected:
  static constexpr uint32_t kMaxBatch = 6;
  const Graph& graph() const { return GetParam().graph; }
};

void ExpectClose(absl::Span<const float> actual, absl::Span<const float> expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 1e-3;
  for (const float value : expected) largest = std::max(largest, std::abs(double{value}));
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << what << " at " << i;
  }
}

TEST_P(PlanTest, AgreesWithTheReferenceForAnyNumberOfRows) {
  Trainer trainer(graph(), kMaxBatch);
  Trainer reference(graph(), kMaxBatch, /*reference=*/true);
  uint64_t step = 0;
  for (const uint32_t rows : {kMaxBatch, 4u, 5u, 4u, kMaxBatch}) {
    const LossResult result = trainer.Gradients(step, 3, rows, 8);
    const LossResult expected = reference.Gradients(step, 3, rows, 8);
    EXPECT_NEAR(result.loss_sum, expected.loss_sum, 1e-5 * expected.loss_sum);
    EXPECT_EQ(result.correct, expected.correct);
    ExpectClose(trainer.plan().logits(rows), reference.plan().logits(rows), 1e-5, "logits");
    for (const ParameterInfo& info : reference.plan().parameters()) {
      ExpectClose(trainer.Gradient(info), reference.Gradient(info), 2e-4, info.name);
    }
    for (const ParameterInfo& info : reference.plan().buffers()) {
      std::vector<float> values(CanonicalElements(info));
      std::vector<float> expected_values(values.size());
      ASSERT_TRUE(trainer.plan().Export(info, absl::MakeSpan(values)).ok());
      ASSERT_TRUE(reference.plan().Export(info, absl::MakeSpan(expected_values)).ok());
      ExpectClose(values, expected_values, 1e-5, info.name);
    }
    ++step;
  }
  // With the running statistics that training left, and without dropout.
  trainer.Fill(step, 0, kMaxBatch);
  reference.Fill(step, 0, kMaxBatch);
  trainer.plan().Forward(kMaxBatch, false, {});
  reference.plan().Forward(kMaxBatch, false, {});
  ExpectClose(trainer.plan().logits(kMaxBatch), reference.plan().logits(kMaxBatch), 1e-5,
              "logits of evaluation");
}

TEST_P(PlanTest, ReferenceGradientIsAFiniteDifference) {
  Trainer trainer(graph(), kMaxBatch, /*reference=*/true);
  trainer.Gradients(0, 0, kMaxBatch, kMaxBatch);
  for (const ParameterInfo& info : trainer.plan().parameters()) {
    // Along the gradient itself, where a tensor's slope is its gradient's length.
    const std::vector<float> gradient = trainer.Gradient(info);
    const std::vector<float> start = trainer.Exported(trainer.parameters(), info);
    double length = 0;
    for (const float value : gradient) length += double{value} * double{value};
    length = std::sqrt(length);
    // A bias before batch norm has no effect: its gradient is rounding.
    if (length < 1e-5) continue;
    const auto loss_at = [&](double distance) {
      std::vector<float> moved(start);
      for (size_t i = 0; i < moved.size(); ++i) {
        moved[i] += static_cast<float>(distance * double{gradient[i]} / length);
      }
      EXPECT_TRUE(trainer.plan().Import(info, moved).ok());
      trainer.plan().Forward(kMaxBatch, true, {.seed = 9});
      return trainer.plan().Loss(kMaxBatch, 0.1, 1).loss_sum / kMaxBatch;
    };
    constexpr double kDistance = 2e-3;
    const double slope = (loss_at(kDistance) - loss_at(-kDistance)) / (2 * kDistance);
    EXPECT_NEAR(slope, length, 0.03 * length + 1e-3) << info.name;
    EXPECT_TRUE(trainer.plan().Import(info, start).ok());
  }
}

TEST_P(PlanTest, NoRowsGiveZeroGradientsAndKeepStatistics) {
  Trainer trainer(graph(), kMaxBatch);
  trainer.Gradients(0, 0, kMaxBatch, kMaxBatch);
  std::vector<std::vector<float>> before;
  for (const ParameterInfo& info : trainer.plan().buffers()) {
    before.emplace_back(CanonicalElements(info));
    ASSERT_TRUE(trainer.plan().Export(info, absl::MakeSpan(before.back())).ok());
  }
  const LossResult result = trainer.Gradients(1, 0, 0, kMaxBatch);
  EXPECT_EQ(result.loss_sum, 0);
  EXPECT_EQ(result.correct, 0u);
  for (size_t i = 0; i < trainer.elements(); ++i) ASSERT_EQ(trainer.gradients()[i], 0.0f);
  for (size_t i = 0; i < before.size(); ++i) {
    std::vector<float> after(before[i].size());
    ASSERT_TRUE(trainer.plan().Export(trainer.plan().buffers()[i], absl::MakeSpan(after)).ok());
    EXPECT_EQ(after, before[i]);
  }
}

TEST_P(PlanTest, GradientsAreFinalWhenTheyAreCalledReady) {
  Trainer expected(graph(), kMaxBatch);
  expected.Gradients(0, 0, kMaxBatch, kMaxBatch);
  Trainer trainer(graph(), kMaxBatch);
  trainer.Fill(0, 0, kMaxBatch);
  trainer.plan().Forward(kMaxBatch, true, {.seed = 9});
  trainer.plan().Loss(kMaxBatch, 0.1, 1.0f / kMaxBatch);
  size_t last = trainer.elements();
  int calls = 0;
  trainer.plan().Backward(kMaxBatch, [&](size_t offset) {
    ASSERT_LT(offset, last);
    last = offset;
    ++calls;
    ASSERT_EQ(std::memcmp(trainer.gradients() + offset, expected.gradients() + offset,
                          (trainer.elements() - offset) * sizeof(float)),
              0);
  });
  EXPECT_EQ(last, 0u);
  EXPECT_GT(calls, 1);
}

TEST_P(PlanTest, TheSameStepsGiveTheSameBitsAndPaddingStaysZero) {
  Trainer first(graph(), kMaxBatch);
  Trainer second(graph(), kMaxBatch);
  for (uint64_t step = 0; step < 5; ++step) {
    for (Trainer* trainer : {&first, &second}) {
      trainer->Gradients(step, 0, step == 3 ? 4 : kMaxBatch, kMaxBatch);
      trainer->Update();
    }
  }
  EXPECT_EQ(std::memcmp(first.parameters(), second.parameters(), first.elements() * sizeof(float)),
            0);
  size_t canonical = 0;
  for (const ParameterInfo& info : first.plan().parameters()) {
    canonical += CanonicalElements(info);
    EXPECT_EQ(info.offset % 16, 0u);
  }
  const size_t zeros = static_cast<size_t>(
      std::count(first.parameters(), first.parameters() + first.elements(), 0.0f));
  EXPECT_GE(zeros, first.elements() - canonical);
}

TEST_P(PlanTest, AStepAllocatesNothing) {
  Trainer trainer(graph(), kMaxBatch);
  const std::function<void(size_t)> ready = [](size_t) {};
  const auto step = [&](uint32_t rows) {
    trainer.plan().Forward(rows, true, {});
    trainer.plan().Loss(rows, 0.1, 1);
    trainer.plan().Backward(rows, ready);
    trainer.Update();
    trainer.plan().Forward(rows, false, {});
  };
  trainer.Fill(0, 0, kMaxBatch);
  step(kMaxBatch);
  step(5);
  const int64_t before = allocations.load();
  step(kMaxBatch);
  step(5);
  step(0);
  EXPECT_EQ(allocations.load(), before);
}

TEST_P(PlanTest, ExportGivesBackWhatWasImported) {
  Trainer trainer(graph(), kMaxBatch);
  std::mt19937 random(1);
  const auto check = [&](const ParameterInfo& info) {
    std::vector<float> values(CanonicalElements(info));
    for (float& value : values) value = static_cast<float>(random());
    ASSERT_TRUE(trainer.plan().Import(info, values).ok());
    std::vector<float> exported(values.size());
    ASSERT_TRUE(trainer.plan().Export(info, absl::MakeSpan(exported)).ok());
    EXPECT_EQ(exported, values) << info.name;
    values.push_back(0);
    EXPECT_EQ(trainer.plan().Import(info, values).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(trainer.plan().Export(info, absl::MakeSpan(values)).code(),
              absl::StatusCode::kInvalidArgument);
  };
  for (const ParameterInfo& info : trainer.plan().parameters()) check(info);
  for (const ParameterInfo& info : trainer.plan().buffers()) check(info);
  ParameterInfo unknown;
  unknown.name = "nobody";
  EXPECT_EQ(trainer.plan().Import(unknown, {}).code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Graphs, PlanTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// What 1 rank does with 50 rows and 4 ranks with 12 or 13 each, dropout included.
TEST(PlanSharingTest, LossesDoNotDependOnHowManyRanksShareABatch) {
  const Graph graph = Model("small_cnn", {8, 8, 1}, false, 0.3);
  constexpr uint32_t kBatch = 50, kRanks = 4;
  Trainer alone(graph, kBatch);
  std::vector<std::unique_ptr<Trainer>> ranks;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<Trainer>(graph, (kBatch + kRanks - 1) / kRanks));
  }
  for (uint64_t step = 0; step < 50; ++step) {
    const double loss = alone.Gradients(step, 0, kBatch, kBatch).loss_sum;
    alone.Update();
    double shared_loss = 0;
    std::vector<float> sum(alone.elements(), 0.0f);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const uint32_t begin = rank * kBatch / kRanks;
      const uint32_t end = (rank + 1) * kBatch / kRanks;
      shared_loss += ranks[rank]->Gradients(step, begin, end - begin, kBatch).loss_sum;
      ASSERT_EQ(ranks[rank]->elements(), sum.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += ranks[rank]->gradients()[i];
    }
    for (const auto& rank : ranks) {
      std::copy(sum.begin(), sum.end(), rank->gradients());
      rank->Update();
    }
    ASSERT_NEAR(shared_loss, loss, 1e-4 * loss) << "step " << step;
  }
}

// In files a linear layer's columns stand channel-first, as PyTorch flattens.
TEST(PlanLayoutTest, TheFirstLinearsColumnsAreChannelFirst) {
  Graph graph{{2, 3, 4}, {}};
  const NodeId flatten = graph.Add("0", Flatten{}, {kInput});
  graph.Add("1", Linear{1}, {flatten});
  Trainer trainer(graph, 1);
  const ParameterInfo& weight = trainer.plan().parameters()[0];
  for (int i = 0; i < 24; ++i) trainer.plan().input()[i] = static_cast<float>(i);
  ASSERT_TRUE(trainer.plan().Import(trainer.plan().parameters()[1], std::vector<float>{0}).ok());
  for (int c = 0; c < 4; ++c) {
    for (int h = 0; h < 2; ++h) {
      for (int w = 0; w < 3; ++w) {
        std::vector<float> one_hot(24, 0.0f);
        one_hot[(c * 2 + h) * 3 + w] = 1;
        ASSERT_TRUE(trainer.plan().Import(weight, one_hot).ok());
        trainer.plan().Forward(1, false, {});
        EXPECT_EQ(trainer.plan().logits(1)[0], static_cast<float>((h * 3 + w) * 4 + c));
      }
    }
  }
}

TEST(PlanInitializeTest, FollowsPyTorchsDefaultsAndDependsOnSeedAndNameAlone) {
  const Graph graph = Model("small_cnn", {12, 12, 1}, true, 0);
  Trainer trainer(graph, 2);
  Trainer larger(graph, 7);
  for (const ParameterInfo& info : trainer.plan().parameters()) {
    const std::vector<float> values = trainer.Exported(trainer.parameters(), info);
    EXPECT_EQ(larger.Exported(larger.parameters(), info), values);
    if (info.name == "1.weight") EXPECT_THAT(values, Each(1.0f));
    if (info.name == "1.bias") EXPECT_THAT(values, Each(0.0f));
    if (info.name != "9.weight") continue;
    const double bound = 1 / std::sqrt(576.0);
    double squares = 0;
    for (const float value : values) {
      ASSERT_LE(std::abs(value), bound);
      squares += double{value} * double{value};
    }
    EXPECT_NEAR(squares / static_cast<double>(values.size()), bound * bound / 3,
                0.01 * bound * bound);
  }
  std::vector<float> variance(32);
  ASSERT_TRUE(trainer.plan().Export(trainer.plan().buffers()[1], absl::MakeSpan(variance)).ok());
  EXPECT_THAT(variance, Each(1.0f));
  const ParameterInfo& last = trainer.plan().parameters().back();
  const std::vector<float> before = trainer.Exported(trainer.parameters(), last);
  trainer.plan().Initialize(6);
  EXPECT_NE(trainer.Exported(trainer.parameters(), last), before);
}

TEST(PlanCompileTest, DigestsTellLayoutsApart) {
  const Graph graph = Model("small_cnn", {12, 12, 1}, true, 0);
  const auto digest = [](const Graph& of, const CompileOptions& options) {
    return (*Compile(of, options))->layout_digest();
  };
  EXPECT_EQ(digest(graph, {.max_batch = 4}), digest(graph, {.max_batch = 4}));
  EXPECT_NE(digest(graph, {.max_batch = 4}), digest(graph, {.max_batch = 4, .reference = true}));
  EXPECT_NE(digest(graph, {.max_batch = 4}),
            digest(Model("small_cnn", {12, 12, 1}, false, 0), {.max_batch = 4}));
}

TEST(PlanCompileTest, InferenceNeedsLessMemory) {
  const Graph graph = Model("small_cnn", {28, 28, 1}, true, 0);
  const auto training = Compile(graph, {.max_batch = 16});
  const auto inference = Compile(graph, {.max_batch = 16, .training = false});
  ASSERT_TRUE(training.ok() && inference.ok());
  EXPECT_LT((*inference)->arena_bytes(), (*training)->arena_bytes());
}

TEST(PlanCompileTest, RefusesWhatDoesNotFit) {
  const Graph graph = Model("small_cnn", {12, 12, 1}, true, 0);
  EXPECT_EQ(Compile(graph, {.max_batch = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Compile(Model("small_cnn", {9000, 9000, 1}, true, 0), {.max_batch = 4000000000u})
                .status()
                .code(),
            absl::StatusCode::kResourceExhausted);
  Graph pooled{{1, 1, 1}, {}};
  pooled.Add("squeeze", MaxPool2d{}, {kInput});
  EXPECT_THAT(Compile(pooled, {.max_batch = 1}).status().message(), HasSubstr("layer squeeze"));
}

}  // namespace
}  // namespace muster::nn
