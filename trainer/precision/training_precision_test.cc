#include "trainer/precision/training_precision.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::train {
namespace {

using kernels::DataType;

v1::TrainSpec Spec(const std::string& level, const std::string& dtype,
                   const std::string& gradient_dtype) {
  v1::TrainSpec spec;
  spec.set_precision(level);
  spec.mutable_mixed_precision()->set_dtype(dtype);
  spec.mutable_mixed_precision()->set_gradient_dtype(gradient_dtype);
  return spec;
}

TEST(TrainingPrecisionTest, MapsLevelsToTypes) {
  constexpr DataType kFloat32 = DataType::kFloat32;
  for (const DataType low : {DataType::kBfloat16, DataType::kFloat16}) {
    const struct {
      const char* level;
      DataType compute, activations, gradients, weights;
    } cases[] = {{"O0", kFloat32, kFloat32, kFloat32, kFloat32},
                 {"O1", low, kFloat32, kFloat32, kFloat32},
                 {"O2", low, low, low, kFloat32},
                 {"O3", low, low, low, low}};
    for (const auto& expected : cases) {
      const auto precision = PrecisionOf(Spec(expected.level, kernels::NameOf(low), "auto"));
      ASSERT_TRUE(precision.ok()) << precision.status();
      EXPECT_EQ(precision->plan.compute, expected.compute) << expected.level;
      EXPECT_EQ(precision->plan.activations, expected.activations) << expected.level;
      EXPECT_EQ(precision->gradients, expected.gradients) << expected.level;
      EXPECT_EQ(precision->weights, expected.weights) << expected.level;
    }
  }
}

TEST(TrainingPrecisionTest, ChoosesGradientTypeSeparately) {
  EXPECT_EQ(PrecisionOf(Spec("O1", "bfloat16", "float16"))->gradients, DataType::kFloat16);
  EXPECT_EQ(PrecisionOf(Spec("O2", "float16", "float32"))->gradients, DataType::kFloat32);
}

TEST(TrainingPrecisionTest, AutomaticGradientsAreFloat32InSharedMemory) {
  const TrainingPrecision automatic = *PrecisionOf(Spec("O2", "bfloat16", "auto"));
  EXPECT_EQ(ChooseGradients(automatic, /*shared_memory=*/true).gradients, DataType::kFloat32);
  EXPECT_EQ(ChooseGradients(automatic, /*shared_memory=*/false).gradients, DataType::kBfloat16);
  const TrainingPrecision chosen = *PrecisionOf(Spec("O2", "bfloat16", "bfloat16"));
  EXPECT_EQ(ChooseGradients(chosen, /*shared_memory=*/true).gradients, DataType::kBfloat16);
}

TEST(TrainingPrecisionTest, FormatsPrecision) {
  EXPECT_EQ(PrecisionText(*PrecisionOf({})), "O0 float32");
  EXPECT_EQ(PrecisionText(*PrecisionOf(Spec("O2", "bfloat16", "auto"))),
            "O2 bfloat16, gradients bfloat16");
  EXPECT_EQ(PrecisionText(*PrecisionOf(Spec("O1", "float16", "auto"))),
            "O1 float16, gradients float32");
  const v1::PrecisionInfo info = PrecisionInfoOf(*PrecisionOf(Spec("O3", "bfloat16", "float16")));
  EXPECT_EQ(info.level(), "O3");
  EXPECT_EQ(info.dtype(), "bfloat16");
  EXPECT_EQ(info.gradient_dtype(), "float16");
}

TEST(TrainingPrecisionTest, RejectsUnknownValues) {
  for (const v1::TrainSpec& spec : {Spec("O4", "bfloat16", "auto"), Spec("O2", "float32", "auto"),
                                    Spec("O2", "int8", "auto"), Spec("O2", "bfloat16", "int8")}) {
    const absl::Status status = PrecisionOf(spec).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << spec.ShortDebugString();
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("is not supported by this rank"));
  }
}

}  // namespace
}  // namespace muster::train
