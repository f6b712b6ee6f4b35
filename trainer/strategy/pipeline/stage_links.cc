#include "trainer/strategy/pipeline/stage_links.h"

#include <utility>

#include "common/status.h"
#include "common/time.h"

namespace muster::pipeline {
namespace {

// In a group of two.
constexpr uint32_t kStageBefore = 0;
constexpr uint32_t kStageBehind = 1;

}  // namespace

StageLinks::StageLinks(const Groups& groups, nn::Plan* stage, uint32_t max_rows)
    : device_(stage->device()), max_rows_(max_rows) {
  inputs_ = {groups.activations_in.get(), kStageBefore, {}};
  input_gradients_ = {groups.gradients_out.get(), kStageBefore, {}};
  outputs_ = {groups.activations_out.get(), kStageBehind, {}};
  output_gradients_ = {groups.gradients_in.get(), kStageBehind, {}};
}

absl::StatusOr<std::unique_ptr<StageLinks>> StageLinks::Create(const Groups& groups,
                                                               nn::Plan* stage, uint32_t slots,
                                                               uint32_t max_rows) {
  std::unique_ptr<StageLinks> links(new StageLinks(groups, stage, max_rows));
  for (Link* link :
       {&links->inputs_, &links->input_gradients_, &links->outputs_, &links->output_gradients_}) {
    link->slots.resize(slots);
  }
  for (uint32_t slot = 0; slot < slots; ++slot) {
    stage->SelectSlot(slot);
    const auto add = [&](Link& link, const nn::BoundaryTensor& tensor, void* data) {
      return links->AddParcel(link, slot, tensor, data);
    };
    for (const nn::BoundaryTensor& tensor : stage->boundary_inputs()) {
      RETURN_IF_ERROR(add(links->inputs_, tensor, tensor.data));
      RETURN_IF_ERROR(add(links->input_gradients_, tensor, tensor.gradient));
    }
    for (const nn::BoundaryTensor& tensor : stage->boundary_outputs()) {
      RETURN_IF_ERROR(add(links->outputs_, tensor, tensor.data));
      RETURN_IF_ERROR(add(links->output_gradients_, tensor, tensor.gradient));
    }
  }
  stage->SelectSlot(0);
  return links;
}

absl::Status StageLinks::AddParcel(Link& link, uint32_t slot, const nn::BoundaryTensor& tensor,
                                   void* data) {
  // Nobody wants the gradient of what no parameter lies before.
  if (data == nullptr) return absl::OkStatus();
  Parcel& parcel = link.slots[slot].emplace_back();
  parcel.row_bytes = tensor.row_bytes;
  parcel.data = parcel.host = data;
  if (device_.host_memory()) return absl::OkStatus();
  ASSIGN_OR_RETURN(parcel.staged, device_.AllocateHost(tensor.row_bytes * max_rows_));
  parcel.host = parcel.staged.data();
  return absl::OkStatus();
}

void StageLinks::Expect(Link& link, uint32_t slot, uint32_t rows) {
  if (link.group == nullptr || rows == 0) return;
  for (Parcel& parcel : link.slots[slot]) {
    parcel.rows = rows;
    parcel.work = link.group->Recv(parcel.host, rows * parcel.row_bytes,
                                   collectives::DataType::kUint8, link.peer);
  }
}

absl::Status StageLinks::Await(Link& link, uint32_t slot) {
  for (Parcel& parcel : link.slots[slot]) {
    if (parcel.work == nullptr) continue;
    RETURN_IF_ERROR(Finish(parcel));
    if (parcel.host != parcel.data) {
      device_.CopyToDevice(parcel.data, parcel.host, parcel.rows * parcel.row_bytes);
    }
  }
  return absl::OkStatus();
}

void StageLinks::Send(Link& link, uint32_t slot, uint32_t rows) {
  if (link.group == nullptr || rows == 0) return;
  for (Parcel& parcel : link.slots[slot]) {
    const size_t bytes = rows * parcel.row_bytes;
    if (parcel.host != parcel.data) device_.CopyToHost(parcel.host, parcel.data, bytes);
    parcel.work = link.group->Send(parcel.host, bytes, collectives::DataType::kUint8, link.peer);
  }
}

absl::Status StageLinks::Finish(Parcel& parcel) {
  const SteadyTime start = Now().steady;
  const absl::Status status = std::exchange(parcel.work, nullptr)->Wait();
  waited_ += Now().steady - start;
  return status;
}

bool StageLinks::Sent(uint32_t slot) const {
  for (const Link* link : {&outputs_, &input_gradients_}) {
    for (const Parcel& parcel : link->slots[slot]) {
      if (parcel.work != nullptr && !parcel.work->Done()) return false;
    }
  }
  return true;
}

absl::Status StageLinks::AwaitSent(uint32_t slot) {
  for (Link* link : {&outputs_, &input_gradients_}) {
    for (Parcel& parcel : link->slots[slot]) {
      if (parcel.work != nullptr) RETURN_IF_ERROR(Finish(parcel));
    }
  }
  return absl::OkStatus();
}

size_t StageLinks::activation_bytes(uint32_t rows) const {
  size_t bytes = 0;
  for (const Parcel& parcel : outputs_.slots.front()) bytes += rows * parcel.row_bytes;
  return bytes;
}

}  // namespace muster::pipeline
