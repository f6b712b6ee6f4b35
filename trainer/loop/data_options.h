// Converts a spec's data settings to the options of trainer/data.
#ifndef MUSTER_TRAINER_LOOP_DATA_OPTIONS_H_
#define MUSTER_TRAINER_LOOP_DATA_OPTIONS_H_

#include "proto/muster/v1/job.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/data/image_dataset.h"
#include "trainer/data/transform.h"

namespace muster::train {

data::DatasetOptions DatasetOptionsOf(const v1::DatasetSpec& spec);

// Size of the model's input: that of the spec, otherwise that of the dataset's images. Zero if
// neither defines it.
data::ImageSize InputSizeOf(const v1::TrainSpec& spec, const data::DatasetInfo& info);

// Transform for training: the whole image, augmented. Zero values in the spec mean the default.
data::TransformOptions TrainingTransformOf(const v1::TrainSpec& spec,
                                           const data::DatasetInfo& info);

// Transform for evaluation: the center crop.
data::TransformOptions EvaluationTransformOf(const v1::TrainSpec& spec,
                                             const data::DatasetInfo& info);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_DATA_OPTIONS_H_
