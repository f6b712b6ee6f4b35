#include "worker/train/statistics_reducer.h"

namespace muster::train {

void CommunicatorReducer::Sum(double* values, size_t count) {
  if (!status_.ok()) return;
  status_ = communicator_
                ->AllReduce(values, values, count, collectives::DataType::kFloat64,
                            collectives::ReduceOp::kSum)
                ->Wait();
}

}  // namespace muster::train
