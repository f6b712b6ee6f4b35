// The "fat binary" container in which nvcc embeds device code into an object file.
//
// The format is not documented by NVIDIA. These are the facts that are used here, as observed in
// the output of nvcc 13.0 (all numbers little-endian):
//   wrapper    what __cudaRegisterFatBinary receives: __fatBinC_Wrapper_t of fatbinary_section.h,
//              whose `data` points to the container
//   container  u32 magic 0xba55ed50, u16 version 1, u16 bytes of this header (16), u64 bytes of all
//              entries
//   entry      u16 kind (1 PTX, 2 machine code), u16, u32 bytes of this header, u64 bytes of the
//              payload, u32 bytes of the compressed payload (0: not compressed); at byte 28 u32
//              architecture (80 for compute_80). The payload follows the header, padded with zeros,
//              then the next entry.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_FATBIN_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_FATBIN_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::ptx {

// Returns the PTX modules of the container that a wrapper points to; they are part of it. None if
// the source file has no kernels. INVALID_ARGUMENT for another format, UNIMPLEMENTED for compressed
// PTX (build with nvcc --no-compress).
absl::StatusOr<std::vector<std::string_view>> PtxOfFatbin(const void* wrapper);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_FATBIN_H_
