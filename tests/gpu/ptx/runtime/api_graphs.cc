// Stream capture and graphs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/gpu/ptx/runtime/runtime.h"

using muster::ptx::Call;
using muster::ptx::Capture;
using muster::ptx::CaptureState;
using muster::ptx::ExecutableGraph;
using muster::ptx::Graph;
using muster::ptx::Needs;
using muster::ptx::Runtime;
using muster::ptx::Stream;

namespace muster::ptx {
namespace {

template <typename T>
typename std::vector<std::unique_ptr<T>>::iterator FindHandle(std::vector<std::unique_ptr<T>>& all,
                                                              const void* handle) {
  return std::find_if(all.begin(), all.end(),
                      [handle](const auto& one) { return one.get() == handle; });
}

template <typename T>
cudaError_t DestroyHandle(std::vector<std::unique_ptr<T>>& all, const void* handle) {
  const auto found = FindHandle(all, handle);
  if (found == all.end()) return cudaErrorInvalidValue;
  all.erase(found);
  return cudaSuccess;
}

cudaError_t EndCapture(Runtime& runtime, Stream& origin, cudaGraph_t* graph) {
  const std::shared_ptr<Capture> capture = origin.capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (!capture->IsOrigin(origin)) {
    capture->Invalidate();
    return cudaErrorStreamCaptureUnmatched;
  }
  if (!capture->MayEndHere()) return cudaErrorStreamCaptureWrongThread;
  const bool valid = capture->state() == CaptureState::kActive;
  const bool joined = capture->IsJoined(origin.frontier);
  const std::shared_ptr<const Graph> recorded = runtime.EndCapture(capture);
  if (!valid) return cudaErrorStreamCaptureInvalidated;
  if (!joined) return cudaErrorStreamCaptureUnjoined;
  runtime.graphs.push_back(std::make_unique<Graph>(*recorded));
  *graph = reinterpret_cast<cudaGraph_t>(runtime.graphs.back().get());
  return cudaSuccess;
}

// Reports nodes that lose the priorities of their streams. CUDA ignores them without the flag.
void CheckPriorities(Runtime& runtime, const Graph& graph, unsigned long long flags) {
  if ((flags & cudaGraphInstantiateFlagUseNodePriority) != 0) return;
  const auto other = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const auto& node) {
    return node.priority != graph.nodes.front().priority;
  });
  if (other == graph.nodes.end()) return;
  runtime.Report(absl::StrCat("a graph with nodes of priorities ", graph.nodes.front().priority,
                              " and ", other->priority,
                              " is instantiated without cudaGraphInstantiateFlagUseNodePriority"));
}

cudaError_t LaunchGraph(Runtime& runtime, ExecutableGraph& graph, Stream& stream) {
  if (stream.capture != nullptr) {
    stream.capture->Invalidate();
    return cudaErrorStreamCaptureUnsupported;
  }
  std::vector<CompletionPtr> after;
  if (graph.last_launch != nullptr) after.push_back(graph.last_launch);
  auto work = MakeGraphWork(graph.graph,
                            [&runtime](size_t count) { return runtime.scheduler.Choose(count); });
  graph.last_launch = runtime.scheduler.Push(stream, std::move(work), std::move(after));
  return cudaSuccess;
}

}  // namespace
}  // namespace muster::ptx

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Call("cudaStreamBeginCapture", Needs::kWorkingDevice, [&](Runtime& runtime) {
    Stream* const found = runtime.FindStream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    if (found->is_default) return cudaErrorStreamCaptureUnsupported;
    if (found->capture != nullptr) return cudaErrorIllegalState;
    found->capture = std::make_shared<Capture>(*found, mode);
    found->frontier.clear();
    runtime.captures.push_back(found->capture);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Call("cudaStreamEndCapture", Needs::kWorkingDevice, [&](Runtime& runtime) {
    *graph = nullptr;
    Stream* const found = runtime.FindStream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    return muster::ptx::EndCapture(runtime, *found, graph);
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return Call("cudaStreamIsCapturing", Needs::kWorkingDevice, [&](Runtime& runtime) {
    const Stream* const found = runtime.FindStream(stream);
    if (found == nullptr) return cudaErrorInvalidResourceHandle;
    *status = found->capture == nullptr ? cudaStreamCaptureStatusNone
              : found->capture->state() == CaptureState::kInvalidated
                  ? cudaStreamCaptureStatusInvalidated
                  : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  return Call("cudaGraphInstantiate", Needs::kWorkingDevice, [&](Runtime& runtime) {
    const auto found = muster::ptx::FindHandle(runtime.graphs, graph);
    if (found == runtime.graphs.end()) return cudaErrorInvalidValue;
    muster::ptx::CheckPriorities(runtime, **found, flags);
    runtime.executables.push_back(std::make_unique<ExecutableGraph>());
    runtime.executables.back()->graph = std::make_shared<const Graph>(**found);
    *executable = reinterpret_cast<cudaGraphExec_t>(runtime.executables.back().get());
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}

// Work of the graph runs when it is launched; there is nothing to upload.
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return Call("cudaGraphUpload", Needs::kWorkingDevice, [&](Runtime& runtime) {
    if (runtime.FindStream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    const auto found = muster::ptx::FindHandle(runtime.executables, executable);
    return found == runtime.executables.end() ? cudaErrorInvalidValue : cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return Call("cudaGraphLaunch", Needs::kWorkingDevice, [&](Runtime& runtime) {
    Stream* const in = runtime.FindStream(stream);
    if (in == nullptr) return cudaErrorInvalidResourceHandle;
    const auto found = muster::ptx::FindHandle(runtime.executables, executable);
    if (found == runtime.executables.end()) return cudaErrorInvalidValue;
    return muster::ptx::LaunchGraph(runtime, **found, *in);
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return Call("cudaGraphGetNodes", Needs::kWorkingDevice, [&](Runtime& runtime) {
    const auto found = muster::ptx::FindHandle(runtime.graphs, graph);
    if (found == runtime.graphs.end() || nodes != nullptr) return cudaErrorInvalidValue;
    *count = (*found)->nodes.size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Call("cudaGraphDestroy", Needs::kWorkingDevice,
              [&](Runtime& runtime) { return muster::ptx::DestroyHandle(runtime.graphs, graph); });
}

// Launches that are queued still run.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return Call("cudaGraphExecDestroy", Needs::kWorkingDevice, [&](Runtime& runtime) {
    return muster::ptx::DestroyHandle(runtime.executables, executable);
  });
}

}  // extern "C"
