// From a spec's words about data to the options of trainer/data.
#ifndef MUSTER_TRAINER_LOOP_DATA_OPTIONS_H_
#define MUSTER_TRAINER_LOOP_DATA_OPTIONS_H_

#include "proto/muster/v1/job.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/data/image_dataset.h"
#include "trainer/data/transform.h"

namespace muster::train {

data::DatasetOptions DatasetOptionsOf(const v1::DatasetSpec& spec);

// The size of the model's input: the spec's, or that of the data set's images. Zero where neither
// tells.
data::ImageSize InputSizeOf(const v1::TrainSpec& spec, const data::DatasetInfo& info);

// Of training: the whole image, augmented. Zeros in the spec's numbers stand for their defaults.
data::TransformOptions TrainingTransformOf(const v1::TrainSpec& spec,
                                           const data::DatasetInfo& info);

// Of evaluation: the central part.
data::TransformOptions EvaluationTransformOf(const v1::TrainSpec& spec,
                                             const data::DatasetInfo& info);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_DATA_OPTIONS_H_
