#include "collectives/reduce.h"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/half.h"

namespace muster::collectives {
namespace {

using kernels::Bfloat16;
using kernels::Float16;
using kernels::FromFloat16;
using kernels::ToFloat16;

constexpr size_t kBlock = 1024;

struct Arrays {
  absl::Span<const void* const> inputs;
  absl::Span<void* const> outputs;
};

#define MUSTER_ISA plain
#define MUSTER_TARGET
#define MUSTER_LANES 4
#include "collectives/reduce.inc"
#undef MUSTER_ISA
#undef MUSTER_TARGET
#undef MUSTER_LANES

#define MUSTER_ISA avx2
#define MUSTER_TARGET __attribute__((target("avx2,f16c")))
#define MUSTER_LANES 8
#include "collectives/reduce.inc"
#undef MUSTER_ISA
#undef MUSTER_TARGET
#undef MUSTER_LANES

#define MUSTER_ISA avx512
#define MUSTER_TARGET __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")))
#define MUSTER_LANES 16
#include "collectives/reduce.inc"

struct InstructionSet {
  absl::string_view name;
  void (*reduce)(const Arrays&, size_t, DataType, ReduceOp);
};

bool HasF16c() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

std::vector<InstructionSet> Detect() {
  std::vector<InstructionSet> sets;
  const bool avx2 = __builtin_cpu_supports("avx2") && HasF16c();
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    sets.push_back({"avx512", &avx512::Reduce});
  }
  if (avx2) sets.push_back({"avx2", &avx2::Reduce});
  sets.push_back({"plain", &plain::Reduce});
  return sets;
}

const std::vector<InstructionSet>& Detected() {
  static const auto* const sets = new std::vector<InstructionSet>(Detect());
  return *sets;
}

}  // namespace

void ReduceArrays(absl::Span<const void* const> inputs, absl::Span<void* const> outputs,
                  size_t count, DataType type, ReduceOp op) {
  if (inputs.empty() || outputs.empty() || count == 0) return;
  Detected().front().reduce({inputs, outputs}, count, type, op);
}

absl::Span<const absl::string_view> ReduceInstructionSets() {
  static const auto* const names = [] {
    auto* result = new std::vector<absl::string_view>;
    for (const InstructionSet& set : Detected()) result->push_back(set.name);
    return result;
  }();
  return *names;
}

void ReduceArraysWith(absl::string_view instruction_set, absl::Span<const void* const> inputs,
                      absl::Span<void* const> outputs, size_t count, DataType type, ReduceOp op) {
  if (inputs.empty() || outputs.empty() || count == 0) return;
  for (const InstructionSet& set : Detected()) {
    if (set.name == instruction_set) return set.reduce({inputs, outputs}, count, type, op);
  }
}

}  // namespace muster::collectives
