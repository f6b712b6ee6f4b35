// What travels between a stage and its neighbours: activations forward, their gradients back.
//
// Every slot of the stage's plan has its own arrays at both ends (nn::Plan::boundary_inputs), so
// that a micro-batch travels while another one is computed. Receives are posted early by
// PostRecv…, and waited for by Await… only where the data is needed; what is sent goes by itself,
// and is waited for before its slot is used again.
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

// For the training thread of one generation. Micro-batches go over each link in the same order at
// both ends. Nothing travels of a micro-batch without rows. Errors: the communicators'.
class StageLinks {
 public:
  // `groups` and `stage`, a plan for max_rows rows in each of `slots` slots, outlive the links.
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<StageLinks>> Create(const train::ProcessGroups& groups,
                                                            nn::Plan* stage, uint32_t slots,
                                                            uint32_t max_rows);

  void PostRecvActivations(uint32_t slot, uint32_t rows) { PostRecv(inputs_, slot, rows); }
  absl::Status AwaitActivations(uint32_t slot) { return Await(inputs_, slot); }
  void SendActivations(uint32_t slot, uint32_t rows) { Send(outputs_, slot, rows); }

  void PostRecvGradients(uint32_t slot, uint32_t rows) { PostRecv(output_gradients_, slot, rows); }
  absl::Status AwaitGradients(uint32_t slot) { return Await(output_gradients_, slot); }
  void SendGradients(uint32_t slot, uint32_t rows) { Send(input_gradients_, slot, rows); }

  // Whether all that was sent of the slot has arrived.
  bool Sent(uint32_t slot) const;
  // Waits until it has.
  absl::Status AwaitSent(uint32_t slot);

  // Spent in waiting since Create.
  absl::Duration waited() const { return waited_; }
  // What `rows` rows send to the next stage.
  size_t activation_bytes(uint32_t rows) const;

 private:
  // A tensor at one end of a link.
  struct P2PTransfer {
    size_t row_bytes = 0;
    void* data = nullptr;  // in the device's memory
    void* host = nullptr;  // where it travels from and to; `data`, or staged
    kernels::HostMemory staged;
    uint32_t rows = 0;                        // that are on their way
    std::shared_ptr<collectives::Work> work;  // null: none is
  };
  struct Link {
    collectives::Communicator* group = nullptr;  // null: nothing travels
    uint32_t peer = 0;
    std::vector<std::vector<P2PTransfer>> slots;
  };
  StageLinks(const train::ProcessGroups& groups, nn::Plan* stage, uint32_t max_rows);
  absl::Status AddP2PTransfer(Link& link, uint32_t slot, const nn::BoundaryTensor& tensor,
                              void* data);
  void PostRecv(Link& link, uint32_t slot, uint32_t rows);
  absl::Status Await(Link& link, uint32_t slot);
  void Send(Link& link, uint32_t slot, uint32_t rows);
  absl::Status Finish(P2PTransfer& transfer);

  kernels::Device& device_;
  const uint32_t max_rows_;
  Link inputs_, outputs_, input_gradients_, output_gradients_;
  absl::Duration waited_;
};

}  // namespace muster::pipeline

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_LINKS_H_
