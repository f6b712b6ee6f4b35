#include "trainer/strategy/pipeline/stage_links.h"

#include <utility>

#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster::pipeline {
namespace {

// Ranks in a point-to-point group.
constexpr uint32_t kPreviousStage = 0;
constexpr uint32_t kNextStage = 1;

// Whether links connect the memories of devices; all of a job's links are of one kind.
bool ConnectDevices(const train::ProcessGroups& groups) { return groups.devices != nullptr; }

}  // namespace

StageLinks::StageLinks(const train::ProcessGroups& groups, nn::Plan* stage, uint32_t max_samples)
    : device_(stage->device()), max_samples_(max_samples), on_devices_(ConnectDevices(groups)) {
  inputs_ = {groups.activations_in.get(), kPreviousStage, {}};
  input_gradients_ = {groups.gradients_out.get(), kPreviousStage, {}};
  outputs_ = {groups.activations_out.get(), kNextStage, {}};
  output_gradients_ = {groups.gradients_in.get(), kNextStage, {}};
}

absl::StatusOr<std::unique_ptr<StageLinks>> StageLinks::Create(const train::ProcessGroups& groups,
                                                               nn::Plan* stage, uint32_t slots,
                                                               uint32_t max_samples) {
  std::unique_ptr<StageLinks> links(new StageLinks(groups, stage, max_samples));
  for (Link* link :
       {&links->inputs_, &links->input_gradients_, &links->outputs_, &links->output_gradients_}) {
    link->slots.resize(slots);
  }
  for (uint32_t slot = 0; slot < slots; ++slot) {
    stage->SelectSlot(slot);
    const auto add = [&](Link& link, const nn::BoundaryTensor& tensor, void* data) {
      return links->AddP2PTransfer(link, slot, tensor, data);
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

StageLinks::~StageLinks() {
  for (const Link* link : {&inputs_, &input_gradients_, &outputs_, &output_gradients_}) {
    for (const auto& slot : link->slots) {
      for (const P2PTransfer& transfer : slot) {
        if (transfer.work == nullptr || transfer.work->Done()) continue;
        link->group->Abort(absl::AbortedError("the step has failed"));
        transfer.work->Wait().IgnoreError();
      }
    }
  }
}

absl::Status StageLinks::AddP2PTransfer(Link& link, uint32_t slot, const nn::BoundaryTensor& tensor,
                                        void* data) {
  // No gradient is needed if no parameter precedes this tensor.
  if (data == nullptr) return absl::OkStatus();
  P2PTransfer& transfer = link.slots[slot].emplace_back();
  transfer.sample_bytes = tensor.sample_bytes;
  transfer.data = transfer.host = data;
  if (on_devices_ || device_.host_memory()) return absl::OkStatus();
  ASSIGN_OR_RETURN(transfer.staged, device_.AllocateHost(tensor.sample_bytes * max_samples_,
                                                         "transfers between stages"));
  transfer.host = transfer.staged.data();
  return absl::OkStatus();
}

void StageLinks::PostRecv(Link& link, uint32_t slot, uint32_t samples) {
  if (link.group == nullptr || samples == 0) return;
  for (P2PTransfer& transfer : link.slots[slot]) {
    transfer.samples = samples;
    transfer.work = link.group->Recv(transfer.host, samples * transfer.sample_bytes,
                                     collectives::DataType::kUint8, link.peer);
  }
  Start(link, slot);
}

absl::Status StageLinks::Await(Link& link, uint32_t slot) {
  for (P2PTransfer& transfer : link.slots[slot]) {
    if (transfer.work == nullptr) continue;
    RETURN_IF_ERROR(Finish(transfer));
    if (transfer.host != transfer.data) {
      device_.CopyToDevice(transfer.data, transfer.host, transfer.samples * transfer.sample_bytes);
    }
  }
  return absl::OkStatus();
}

void StageLinks::Send(Link& link, uint32_t slot, uint32_t samples) {
  if (link.group == nullptr || samples == 0) return;
  for (P2PTransfer& transfer : link.slots[slot]) {
    const size_t bytes = samples * transfer.sample_bytes;
    if (transfer.host != transfer.data) device_.CopyToHost(transfer.host, transfer.data, bytes);
    transfer.work =
        link.group->Send(transfer.host, bytes, collectives::DataType::kUint8, link.peer);
  }
  Start(link, slot);
}

void StageLinks::Start(const Link& link, uint32_t slot) {
  if (!on_devices_ || link.slots[slot].empty()) return;
  // NCCL starts what was issued when one of the operations is polled.
  (void)link.slots[slot].back().work->Done();
}

absl::Status StageLinks::Finish(P2PTransfer& transfer) {
  if (on_devices_) return std::exchange(transfer.work, nullptr)->Join();
  const SteadyTime start = Now().steady;
  const absl::Status status = std::exchange(transfer.work, nullptr)->Wait();
  waited_ += Now().steady - start;
  return status;
}

bool StageLinks::Sent(uint32_t slot) const {
  if (on_devices_) return true;
  for (const Link* link : {&outputs_, &input_gradients_}) {
    for (const P2PTransfer& transfer : link->slots[slot]) {
      if (transfer.work != nullptr && !transfer.work->Done()) return false;
    }
  }
  return true;
}

absl::Status StageLinks::AwaitSent(uint32_t slot) {
  for (Link* link : {&outputs_, &input_gradients_}) {
    for (P2PTransfer& transfer : link->slots[slot]) {
      if (transfer.work != nullptr) RETURN_IF_ERROR(Finish(transfer));
    }
  }
  return absl::OkStatus();
}

size_t StageLinks::activation_bytes(uint32_t samples) const {
  size_t bytes = 0;
  for (const P2PTransfer& transfer : outputs_.slots.front()) {
    bytes += samples * transfer.sample_bytes;
  }
  return bytes;
}

}  // namespace muster::pipeline
