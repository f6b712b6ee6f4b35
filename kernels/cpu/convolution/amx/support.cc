#include "kernels/cpu/convolution/amx/support.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/table/instruction_set.h"

namespace muster::kernels::cpu {
namespace {

bool ProcessorHasAmx() {
  constexpr unsigned kBfloat16 = 1u << 22, kTiles = 1u << 24;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kBfloat16) != 0 &&
         (edx & kTiles) != 0;
}

// The tile registers are large: Linux grants them to a process on request.
bool ProcessMayUseTiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, missing in older headers
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool HasAmx() {
  static const bool has = DetectInstructionSet() >= InstructionSet::kAvx512Bf16 &&
                          ProcessorHasAmx() && ProcessMayUseTiles();
  return has;
}

}  // namespace muster::kernels::cpu
