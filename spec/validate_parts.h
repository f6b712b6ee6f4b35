// The parts of Validate: each looks at a part of the spec and adds what is wrong with it to
// `problems`. Pure functions.
#ifndef MUSTER_SPEC_VALIDATE_PARTS_H_
#define MUSTER_SPEC_VALIDATE_PARTS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "proto/muster/v1/job.pb.h"
#include "spec/problems.h"

namespace muster::spec {

// The field of this name holds one of the words that spec/fields.cc gives it.
void RequireWord(absl::string_view path, const google::protobuf::Message& message,
                 const std::string& name, Problems& problems);

// spec.train, with what it has to fit in the rest of the spec.
void CheckTrain(const v1::JobSpec& spec, Problems& problems);
// train.model.
void CheckModel(const v1::ModelSpec& model, Problems& problems);
// train.dataset, image_size, augment and loader.
void CheckData(const v1::TrainSpec& train, Problems& problems);
// train.optimizer, schedule, objective and ema.
void CheckLearning(const v1::TrainSpec& train, Problems& problems);
// train.strategy, with what it has to fit in the rest of the spec.
void CheckStrategy(const v1::JobSpec& spec, Problems& problems);

inline constexpr double kMaxEpochs = 1e6;
inline constexpr uint32_t kMaxWidth = 65536;  // of a layer
inline constexpr uint32_t kMaxThreads = 1024;

}  // namespace muster::spec

#endif  // MUSTER_SPEC_VALIDATE_PARTS_H_
