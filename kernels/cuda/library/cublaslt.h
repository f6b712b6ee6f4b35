// The functions of libcublasLt.so, loaded at run time, and a matrix product that uses them.
#ifndef MUSTER_KERNELS_CUDA_LIBRARY_CUBLASLT_H_
#define MUSTER_KERNELS_CUDA_LIBRARY_CUBLASLT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/library/cublaslt_abi.h"
#include "kernels/cuda/library/open_library.h"
#include "kernels/cuda/numerics.h"
#include "kernels/data_type.h"

namespace muster::kernels::cuda {

struct CublasLt {
#define MUSTER_DECLARE(name, symbol, parameters) CublasStatus(*name) parameters = nullptr;
  CUBLASLT_FUNCTIONS(MUSTER_DECLARE)
#undef MUSTER_DECLARE
  const char* (*status_text)(CublasStatus) = nullptr;

  // Converts cuBLASLt's status, with its text and `what` in the message: UNIMPLEMENTED for
  // unsupported operations, OutOfMemoryError, INTERNAL for other errors.
  absl::Status StatusOf(CublasStatus code, absl::string_view what) const;
};

// Opens libcublasLt.so of CUDA 13 or, if there is none, of CUDA 12. Errors: NOT_FOUND if there is
// neither, FAILED_PRECONDITION if the library lacks a function.
absl::StatusOr<CublasLt> OpenCublasLt(const LibrarySearchPath& search_path);

// Minimum alignment of operands in bytes, which kernels/convolution.h guarantees, unless a
// MatmulProblem has another one.
inline constexpr uint32_t kMatmulAlignment = 32;
// Workspace of a product; the size that cuBLASLt's documentation recommends for Hopper.
inline constexpr size_t kCublasLtWorkspaceBytes = size_t{32} << 20;

// The matrix product d = epilogue(op(a) * op(b) + c) of column-major matrices, with d and c [m, n],
// op(a) [m, k] and op(b) [k, n]. Operands are of operand_type; accumulation is in float32.
struct MatmulProblem {
  int64_t m, n, k;
  bool transpose_a, transpose_b;  // whether a is [k, m], and b [n, k], in memory
  DataType operand_type;
  DataType d_type;  // type of c, d and bias
  bool add_c;
  // With kCublasLtEpilogueBias, bias [m] is added to each column. With
  // kCublasLtEpilogueBiasGradientOfB, the sums of op(b)'s columns are written to bias [n].
  CublasLtEpilogue epilogue;
  // Elements from one column in memory to the next; 0: no gaps.
  int64_t b_stride = 0;
  int64_t d_stride = 0;  // stride of c and d
  uint32_t b_alignment = kMatmulAlignment;
  Numerics numerics = {};
};

// A matrix product with a chosen algorithm. Used by the thread of the handle's device.
class CublasLtMatmul {
 public:
  // Chooses the first algorithm that the heuristics return. UNIMPLEMENTED if none needs at most
  // workspace_bytes.
  static absl::StatusOr<CublasLtMatmul> Make(const CublasLt& cublaslt, CublasLtHandle handle,
                                             const MatmulProblem& problem, size_t workspace_bytes);

  // Queues the product in the stream. c and bias are read or written only if the problem has them.
  // Arrays are aligned to kMatmulAlignment, b to the problem's b_alignment, and the workspace
  // 256-byte aligned.
  absl::Status Run(const void* a, const void* b, const void* c, void* d, const void* bias,
                   void* workspace, void* stream) const;

 private:
  struct Free {
    CublasStatus (*destroy)(void*);
    void operator()(void* object) const { destroy(object); }
  };
  using Owned = std::unique_ptr<void, Free>;

  CublasLtMatmul(const CublasLt& cublaslt, CublasLtHandle handle, const MatmulProblem& problem)
      : cublaslt_(&cublaslt), handle_(handle), problem_(problem) {}
  absl::StatusOr<Owned> Layout(DataType type, int64_t rows, int64_t columns, int64_t stride) const;

  const CublasLt* cublaslt_;
  CublasLtHandle handle_;
  MatmulProblem problem_;
  Owned matmul_, a_, b_, d_;
  CublasLtAlgorithm algorithm_ = {};
  size_t workspace_bytes_ = 0;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_LIBRARY_CUBLASLT_H_
