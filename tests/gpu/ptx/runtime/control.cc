#include "tests/gpu/ptx/runtime/control.h"

#include "tests/gpu/ptx/runtime/runtime.h"

namespace muster::ptx {
namespace {

template <typename Body>
auto Locked(const Body& body) {
  Runtime& runtime = Runtime::Get();
  const std::unique_lock<std::mutex> lock(runtime.mutex);
  return body(runtime);
}

const PtxControl kControl = {
    .set_order =
        [](uint64_t seed) { Locked([&](Runtime& runtime) { runtime.scheduler.SetOrder(seed); }); },
    .set_memory =
        [](size_t bytes) { Locked([&](Runtime& runtime) { runtime.memory_bytes = bytes; }); },
    .fail_call =
        [](const char* function, uint64_t call, int error) {
          Locked([&](Runtime& runtime) {
            runtime.faults.Add(function, call, static_cast<cudaError_t>(error));
          });
        },
    .reset = [] { Locked([](Runtime& runtime) { runtime.Reset(); }); },
    .reports = [] { return Locked([](Runtime& runtime) { return runtime.reports.size(); }); },
    .report =
        [](size_t index) {
          return Locked([&](Runtime& runtime) { return runtime.reports.at(index).c_str(); });
        },
    .allocations =
        [] {
          return Locked([](Runtime& runtime) {
            size_t count = 0;
            for (size_t device = 0; device < runtime.gpus.size(); ++device) {
              count += runtime.memory.of(static_cast<int>(device)).allocations();
            }
            return count;
          });
        },
    .launches = [] { return Locked([](Runtime& runtime) { return runtime.counters.launches; }); },
    .instructions =
        [] { return Locked([](Runtime& runtime) { return runtime.counters.instructions; }); },
};

}  // namespace
}  // namespace muster::ptx

extern "C" const PtxControl* MusterPtxControl(void) { return &muster::ptx::kControl; }
