#include "trainer/loop/data_options.h"

namespace muster::train {
namespace {

void SetIfGiven(double value, double& option) {
  if (value != 0) option = value;
}

data::RandomResizedCropOptions OptionsOf(const v1::RandomResizedCropSpec& spec) {
  data::RandomResizedCropOptions options;
  SetIfGiven(spec.min_scale(), options.min_scale);
  SetIfGiven(spec.max_scale(), options.max_scale);
  SetIfGiven(spec.min_ratio(), options.min_ratio);
  SetIfGiven(spec.max_ratio(), options.max_ratio);
  return options;
}

data::RandomErasingOptions OptionsOf(const v1::RandomErasingSpec& spec) {
  data::RandomErasingOptions options;
  SetIfGiven(spec.probability(), options.probability);
  SetIfGiven(spec.min_scale(), options.min_scale);
  SetIfGiven(spec.max_scale(), options.max_scale);
  SetIfGiven(spec.min_ratio(), options.min_ratio);
  SetIfGiven(spec.max_ratio(), options.max_ratio);
  return options;
}

}  // namespace

data::DatasetOptions DatasetOptionsOf(const v1::DatasetSpec& spec) {
  data::DatasetOptions options;
  options.name = spec.name();
  options.path = spec.path();
  options.mean.assign(spec.mean().begin(), spec.mean().end());
  options.standard_deviation.assign(spec.standard_deviation().begin(),
                                    spec.standard_deviation().end());
  return options;
}

data::ImageSize InputSizeOf(const v1::TrainSpec& spec, const data::DatasetInfo& info) {
  if (spec.image_size() > 0) return {spec.image_size(), spec.image_size()};
  return {info.height, info.width};
}

data::TransformOptions TrainingTransformOf(const v1::TrainSpec& spec,
                                           const data::DatasetInfo& info) {
  data::TransformOptions options;
  options.size = InputSizeOf(spec, info);
  const v1::AugmentSpec& augment = spec.augment();
  options.augment.crop_padding = augment.crop_padding();
  options.augment.flip = augment.flip();
  options.augment.seed = spec.seed();
  if (augment.has_random_resized_crop()) {
    options.augment.random_resized_crop = OptionsOf(augment.random_resized_crop());
  }
  if (augment.has_random_erasing()) {
    options.augment.random_erasing = OptionsOf(augment.random_erasing());
  }
  return options;
}

data::TransformOptions EvaluationTransformOf(const v1::TrainSpec& spec,
                                             const data::DatasetInfo& info) {
  data::TransformOptions options;
  options.size = InputSizeOf(spec, info);
  SetIfGiven(spec.dataset().center_crop(), options.center_crop);
  return options;
}

}  // namespace muster::train
