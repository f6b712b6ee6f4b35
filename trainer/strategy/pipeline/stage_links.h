// Transfers between neighboring pipeline stages: activations forward, their gradients backward.
//
// Every slot of the stage's plan has its own arrays at both ends (nn::Plan::boundary_inputs), so
// that a micro-batch is transferred while another is computed. PostRecv… posts a receive early and
// Await… waits for it when the data is needed. Sends complete in the background and are waited for
// before their slot is reused.
//
// If the groups connect devices, the devices transfer the arrays themselves: the methods only queue
// work, the same in every step, and `Await…` makes later device work wait. It may be captured in a
// graph. Each direction has a communicator, and so a stream, of its own: transfers wait only for
// those before them in the same direction and for computations that precede them in the schedule,
// which cannot deadlock. Otherwise the processes transfer, and devices with memory of their own
// copy the arrays to and from host memory.
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_LINKS_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_LINKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "trainer/graph/plan.h"
#include "trainer/strategy/process_groups.h"

namespace muster::pipeline {

// Used by the training thread of one generation. Both ends of a link transfer micro-batches in the
// same order. Micro-batches without samples are not transferred. Methods return the communicators'
// errors.
class StageLinks {
 public:
  // `stage` is a plan with `slots` slots of at most max_samples samples each; it and `groups`
  // outlive the links. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<StageLinks>> Create(const train::ProcessGroups& groups,
                                                            nn::Plan* stage, uint32_t slots,
                                                            uint32_t max_samples);
  // After an error, aborts the transfers in flight, which would access memory of the plan.
  ~StageLinks();
  StageLinks(const StageLinks&) = delete;
  StageLinks& operator=(const StageLinks&) = delete;

  void PostRecvActivations(uint32_t slot, uint32_t samples) { PostRecv(inputs_, slot, samples); }
  absl::Status AwaitActivations(uint32_t slot) { return Await(inputs_, slot); }
  void SendActivations(uint32_t slot, uint32_t samples) { Send(outputs_, slot, samples); }

  void PostRecvGradients(uint32_t slot, uint32_t samples) {
    PostRecv(output_gradients_, slot, samples);
  }
  absl::Status AwaitGradients(uint32_t slot) { return Await(output_gradients_, slot); }
  void SendGradients(uint32_t slot, uint32_t samples) { Send(input_gradients_, slot, samples); }

  // Whether AwaitSent returns without waiting, which is always true between devices.
  bool Sent(uint32_t slot) const;
  // Waits until all sends of the slot have completed.
  absl::Status AwaitSent(uint32_t slot);

  // Whether devices transfer.
  bool on_devices() const { return on_devices_; }
  // Time spent waiting since Create; zero between devices, where the process does not wait.
  absl::Duration waited() const { return waited_; }
  // Bytes of activations that are sent to the next stage for `samples` samples.
  size_t activation_bytes(uint32_t samples) const;

 private:
  // One tensor of a slot at one end of a link.
  struct P2PTransfer {
    size_t sample_bytes = 0;
    void* data = nullptr;                     // in device memory
    void* host = nullptr;                     // send or receive buffer; `data`, or `staged`
    kernels::HostMemory staged;               // empty if the communicator accesses `data`
    uint32_t samples = 0;                     // samples in flight
    std::shared_ptr<collectives::Work> work;  // null if none are
  };
  struct Link {
    collectives::Communicator* group = nullptr;  // null: no transfers
    uint32_t peer = 0;
    std::vector<std::vector<P2PTransfer>> slots;
  };
  StageLinks(const train::ProcessGroups& groups, nn::Plan* stage, uint32_t max_samples);
  absl::Status AddP2PTransfer(Link& link, uint32_t slot, const nn::BoundaryTensor& tensor,
                              void* data);
  void PostRecv(Link& link, uint32_t slot, uint32_t samples);
  absl::Status Await(Link& link, uint32_t slot);
  void Send(Link& link, uint32_t slot, uint32_t samples);
  // Starts the transfers of a slot that were issued to the group, as one NCCL group.
  void Start(const Link& link, uint32_t slot);
  absl::Status Finish(P2PTransfer& transfer);

  kernels::Device& device_;
  const uint32_t max_samples_;
  const bool on_devices_;
  Link inputs_, outputs_, input_gradients_, output_gradients_;
  absl::Duration waited_;
};

}  // namespace muster::pipeline

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_LINKS_H_
