// Stream capture: recording the work of streams as a graph.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_CAPTURE_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_CAPTURE_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "tests/gpu/ptx/runtime/graph.h"

namespace muster::ptx {

enum class CaptureState { kActive, kInvalidated, kEnded };

// Guarded by the runtime's mutex.
class Capture {
 public:
  Capture(const Stream& origin, cudaStreamCaptureMode mode)
      : origin_(&origin), mode_(mode), thread_(std::this_thread::get_id()) {}

  CaptureState state() const { return state_; }
  bool IsOrigin(const Stream& stream) const { return &stream == origin_; }
  // Whether the capture forbids calls that may synchronise (cudaMalloc, cudaEventQuery of other
  // work, ...) to the calling thread.
  bool ForbidsUnsafeCalls() const {
    if (state_ == CaptureState::kEnded || mode_ == cudaStreamCaptureModeRelaxed) return false;
    return mode_ == cudaStreamCaptureModeGlobal || thread_ == std::this_thread::get_id();
  }
  // Whether the calling thread may end the capture.
  bool MayEndHere() const {
    return mode_ == cudaStreamCaptureModeRelaxed || thread_ == std::this_thread::get_id();
  }

  void Invalidate() {
    if (state_ == CaptureState::kActive) state_ = CaptureState::kInvalidated;
  }
  // Adds work of `stream` as a node after those of its frontier, which becomes the node.
  void Add(std::shared_ptr<Work> work, Stream& stream);
  // Whether every node is, or comes before, one of `frontier`.
  bool IsJoined(const std::vector<size_t>& frontier) const;
  // Ends the capture and returns what was recorded.
  std::shared_ptr<const Graph> End();

 private:
  const Stream* const origin_;
  const cudaStreamCaptureMode mode_;
  const std::thread::id thread_;
  CaptureState state_ = CaptureState::kActive;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
};

// Adds the nodes of `more` that `frontier` lacks.
void JoinFrontier(const std::vector<size_t>& more, std::vector<size_t>& frontier);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_CAPTURE_H_
