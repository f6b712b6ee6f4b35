#include "trainer/precision/training_precision.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status.h"

namespace muster::train {
namespace {

using kernels::DataType;

absl::Status Unknown(absl::string_view field, absl::string_view word) {
  return absl::InvalidArgumentError(
      absl::StrCat("train.", field, ": '", word, "' is not supported by this rank"));
}

absl::StatusOr<DataType> TypeOf(absl::string_view field, absl::string_view word) {
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16}) {
    if (word == kernels::NameOf(type)) return type;
  }
  return Unknown(field, word);
}

}  // namespace

absl::StatusOr<TrainingPrecision> PrecisionOf(const v1::TrainSpec& spec) {
  TrainingPrecision precision;
  const absl::string_view word = spec.precision();
  if (word.empty() || word == "O0") return precision;
  if (word != "O1" && word != "O2" && word != "O3") return Unknown("precision", word);
  precision.level = word[1] - '0';
  const v1::MixedPrecisionSpec& mixed = spec.mixed_precision();
  ASSIGN_OR_RETURN(const DataType low, TypeOf("mixed_precision.dtype", mixed.dtype()));
  if (low == DataType::kFloat32) return Unknown("mixed_precision.dtype", mixed.dtype());
  precision.plan = nn::PrecisionOf(precision.level, low);
  if (precision.level == 3) precision.weights = low;
  precision.gradients = precision.plan.activations;
  precision.automatic_gradients = mixed.gradient_dtype() == "auto";
  if (precision.automatic_gradients && spec.deterministic() == v1::TrainSpec::ELASTIC) {
    // Rounding before a sum would depend on how many samples a rank has summed.
    precision.gradients = DataType::kFloat32;
    precision.automatic_gradients = false;
    return precision;
  }
  if (!precision.automatic_gradients) {
    ASSIGN_OR_RETURN(precision.gradients,
                     TypeOf("mixed_precision.gradient_dtype", mixed.gradient_dtype()));
  }
  return precision;
}

TrainingPrecision ChooseGradients(TrainingPrecision precision, bool shared_memory) {
  if (precision.automatic_gradients && shared_memory) precision.gradients = DataType::kFloat32;
  return precision;
}

v1::PrecisionInfo PrecisionInfoOf(const TrainingPrecision& precision) {
  v1::PrecisionInfo info;
  info.set_level(absl::StrCat("O", precision.level));
  info.set_dtype(kernels::NameOf(precision.plan.compute));
  info.set_gradient_dtype(kernels::NameOf(precision.gradients));
  return info;
}

std::string PrecisionText(const TrainingPrecision& precision) {
  if (precision.level == 0) return "O0 float32";
  const v1::PrecisionInfo info = PrecisionInfoOf(precision);
  return absl::StrCat(info.level(), " ", info.dtype(), ", gradients ", info.gradient_dtype());
}

}  // namespace muster::train
