#include "worker/nn/model.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/nn/plan.h"

namespace muster::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

v1::ModelSpec Spec(const std::string& name) {
  v1::ModelSpec spec;
  spec.set_name(name);
  return spec;
}

std::unique_ptr<Plan> CompileModel(const v1::ModelSpec& spec, const ImageShape& input) {
  auto graph = BuildModel(spec, input, 10);
  EXPECT_TRUE(graph.ok()) << graph.status();
  auto plan = Compile(*graph, {.max_batch = 2});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

int64_t Count(absl::Span<const ParameterInfo> infos) {
  int64_t total = 0;
  for (const ParameterInfo& info : infos) {
    int64_t product = 1;
    for (const int64_t dimension : info.shape) product *= dimension;
    total += product;
  }
  return total;
}

std::vector<std::string> Names(absl::Span<const ParameterInfo> infos) {
  std::vector<std::string> names;
  for (const ParameterInfo& info : infos) names.push_back(info.name);
  return names;
}

TEST(ModelTest, SmallCnnIsTheSequentialThatPyTorchUsersWrite) {
  const auto plan = CompileModel(Spec("small_cnn"), {28, 28, 1});
  EXPECT_EQ(Count(plan->parameters()), 421834);
  EXPECT_THAT(Names(plan->parameters()),
              ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias",
                          "5.weight", "5.bias", "9.weight", "9.bias", "11.weight", "11.bias"));
  EXPECT_THAT(Names(plan->buffers()),
              ElementsAre("1.running_mean", "1.running_var", "5.running_mean", "5.running_var"));
  EXPECT_THAT(plan->parameters()[0].shape, ElementsAre(32, 1, 3, 3));
  EXPECT_THAT(plan->parameters()[8].shape, ElementsAre(128, 3136));
}

TEST(ModelTest, SmallCnnsOptions) {
  v1::ModelSpec spec = Spec("small_cnn");
  spec.set_batch_norm(false);
  spec.set_dropout(0.25);
  const auto plan = CompileModel(spec, {28, 28, 1});
  EXPECT_THAT(Names(plan->parameters()), ElementsAre("0.weight", "0.bias", "3.weight", "3.bias",
                                                     "7.weight", "7.bias", "10.weight", "10.bias"));
  EXPECT_THAT(plan->buffers(), testing::IsEmpty());
  EXPECT_EQ(Count(plan->parameters()), 421834 - 192);
}

TEST(ModelTest, Mlp) {
  v1::ModelSpec spec = Spec("mlp");
  const auto by_default = CompileModel(spec, {28, 28, 1});
  EXPECT_EQ(Count(by_default->parameters()), 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10);
  EXPECT_THAT(Names(by_default->parameters()),
              ElementsAre("1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"));
  spec.add_hidden(7);
  const auto narrow = CompileModel(spec, {5, 3, 2});
  EXPECT_EQ(Count(narrow->parameters()), 30 * 7 + 7 + 7 * 10 + 10);
}

TEST(ModelTest, RefusesWhatItCannotBuild) {
  EXPECT_THAT(BuildModel(Spec("alexnet"), {28, 28, 1}, 10).status().message(),
              HasSubstr("unknown model 'alexnet'"));
  EXPECT_EQ(BuildModel(Spec("small_cnn"), {3, 28, 1}, 10).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(BuildModel(Spec("small_cnn"), {28, 28, 1}, 0).ok());
  v1::ModelSpec dropout = Spec("mlp");
  dropout.set_dropout(1);
  EXPECT_FALSE(BuildModel(dropout, {28, 28, 1}, 10).ok());
  v1::ModelSpec no_width = Spec("mlp");
  no_width.add_hidden(0);
  EXPECT_FALSE(BuildModel(no_width, {28, 28, 1}, 10).ok());
}

}  // namespace
}  // namespace muster::nn
