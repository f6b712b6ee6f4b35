// A task of an array of jobs.
#ifndef MUSTER_SPEC_ARRAY_TASK_H_
#define MUSTER_SPEC_ARRAY_TASK_H_

#include <memory>
#include <vector>

#include "proto/muster/v1/job.pb.h"

namespace muster::spec {

// A spec that several jobs may share.
using SharedSpec = std::shared_ptr<const v1::JobSpec>;

struct ArrayTask {
  SharedSpec spec;  // valid, with defaults and without an array; one for all tasks without values
  // The fields that the array sets and their values for this task, in the array's order.
  std::vector<v1::ArrayValue> values = {};
};

}  // namespace muster::spec

#endif  // MUSTER_SPEC_ARRAY_TASK_H_
