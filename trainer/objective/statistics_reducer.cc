#include "trainer/objective/statistics_reducer.h"

namespace muster::train {

void CommunicatorReducer::Sum(void* values, size_t count, size_t element_bytes,
                              collectives::DataType type) {
  if (!status_.ok() || communicator_ == nullptr) return;
  void* summed = values;
  const size_t bytes = count * element_bytes;
  if (staged_ != nullptr) {
    if (stage_.size() < bytes) stage_.resize(bytes);
    summed = stage_.data();
    staged_->CopyToHost(summed, values, bytes);
  }
  status_ =
      communicator_->AllReduce(summed, summed, count, type, collectives::ReduceOp::kSum)->Join();
  if (staged_ != nullptr && status_.ok()) staged_->CopyToDevice(values, summed, bytes);
}

}  // namespace muster::train
