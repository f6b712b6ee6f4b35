// A small kernel for tests of the interpreter.
#ifndef MUSTER_TESTS_GPU_PTX_TEST_KERNEL_H_
#define MUSTER_TESTS_GPU_PTX_TEST_KERNEL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/gpu/ptx/execution.h"
#include "tests/gpu/ptx/memory.h"
#include "tests/gpu/ptx/module.h"

namespace muster::ptx {

// PTX of a kernel `test` with the parameters a, b (pointers) and n (32 bits). The body finds a in
// %rd1, b in %rd2, n in %r1, the thread in %r2 and the block in %r3, and, for an array of 4-byte
// elements, the address of a[thread] in %rd3 and of b[thread] in %rd4. It may declare shared
// variables and use all registers below %x30.
inline std::string KernelText(std::string_view body) {
  const std::string text = R"(
.version 9.0
.target sm_80
.address_size 64
.visible .entry test(
  .param .u64 test_param_0,
  .param .u64 test_param_1,
  .param .u32 test_param_2
)
{
  .reg .pred %p<30>;
  .reg .b16 %rs<30>;
  .reg .b32 %r<30>;
  .reg .f32 %f<30>;
  .reg .b64 %rd<30>;
  .reg .f64 %fd<30>;
  ld.param.u64 %rd1, [test_param_0];
  ld.param.u64 %rd2, [test_param_1];
  ld.param.u32 %r1, [test_param_2];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mul.wide.u32 %rd5, %r2, 4;
  add.s64 %rd3, %rd1, %rd5;
  add.s64 %rd4, %rd2, %rd5;
)";
  return text + std::string(body) + "\n  ret;\n}\n";
}

// Parses the kernel and runs it.
inline absl::Status RunKernel(std::string_view body, const LaunchConfig& config,
                              DeviceMemory& memory, const void* a, const void* b = nullptr,
                              uint32_t n = 0, Counters* counters = nullptr) {
  const absl::StatusOr<Module> module = Module::Parse(KernelText(body));
  if (!module.ok()) return module.status();
  const void* const arguments[] = {&a, &b, &n};
  return Run(*module->Find("test"), config, arguments, memory, counters);
}

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_TEST_KERNEL_H_
