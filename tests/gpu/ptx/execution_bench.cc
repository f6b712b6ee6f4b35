// Speed of the interpreter, in instructions per second with all checks.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "benchmark/benchmark.h"
#include "tests/gpu/ptx/test_kernel.h"

namespace muster::ptx {
namespace {

constexpr uint32_t kBlocks = 64;
constexpr uint32_t kThreads = 256;

// Runs a kernel over two arrays with an element per thread of a block.
void RunKernels(benchmark::State& state, std::string_view body) {
  DeviceMemory memory;
  const auto array = [&] {
    constexpr size_t kBytes = kThreads * 4;
    void* const data = *memory.Allocate(kBytes);
    std::memset(data, 0, kBytes);
    memory.MarkInitialized(data, kBytes);
    return data;
  };
  const void* const a = array();
  const void* const b = array();
  const auto module = Module::Parse(KernelText(body));
  const uint32_t n = 100;
  const void* const arguments[] = {&a, &b, &n};
  Counters counters;
  for (auto _ : state) {
    const absl::Status status =
        Run(*module->Find("test"), {{kBlocks}, {kThreads}}, arguments, memory, &counters);
    if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
  }
  state.counters["instructions"] =
      benchmark::Counter(static_cast<double>(counters.instructions), benchmark::Counter::kIsRate);
}

// A loop of arithmetic.
void BM_Arithmetic(benchmark::State& state) {
  RunKernels(state, R"(
    mov.f32 %f1, 0f3F800000;
    mov.u32 %r10, 0;
  $loop:
    fma.rn.f32 %f2, %f1, %f1, %f1;
    mul.f32 %f3, %f2, %f1;
    add.s32 %r11, %r10, %r2;
    shl.b32 %r12, %r11, 2;
    add.s32 %r10, %r10, 1;
    setp.lt.s32 %p1, %r10, %r1;
    @%p1 bra $loop;)");
}
BENCHMARK(BM_Arithmetic)->Unit(benchmark::kMillisecond);

// A loop of loads with the address arithmetic that nvcc generates for it.
void BM_GlobalLoads(benchmark::State& state) {
  RunKernels(state, R"(
    mov.f32 %f1, 0f00000000;
    mov.u32 %r10, 0;
  $loop:
    ld.global.f32 %f2, [%rd3];
    ld.global.f32 %f3, [%rd4];
    fma.rn.f32 %f1, %f2, %f3, %f1;
    add.s32 %r10, %r10, 1;
    setp.lt.s32 %p1, %r10, %r1;
    @%p1 bra $loop;)");
}
BENCHMARK(BM_GlobalLoads)->Unit(benchmark::kMillisecond);

// Writes and reads of shared memory between barriers.
void BM_SharedMemory(benchmark::State& state) {
  RunKernels(state, R"(
    .shared .align 4 .b8 buffer[1024];
    mov.u32 %r11, buffer;
    shl.b32 %r12, %r2, 2;
    add.s32 %r13, %r11, %r12;
    xor.b32 %r14, %r13, 4;
    mov.u32 %r10, 0;
  $loop:
    st.shared.u32 [%r13], %r10;
    bar.sync 0;
    ld.shared.u32 %r15, [%r14];
    bar.sync 0;
    add.s32 %r10, %r10, 1;
    setp.lt.s32 %p1, %r10, %r1;
    @%p1 bra $loop;)");
}
BENCHMARK(BM_SharedMemory)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace muster::ptx

BENCHMARK_MAIN();
