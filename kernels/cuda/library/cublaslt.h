// libcublasLt.so as a table of functions, and one matrix product by it.
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
#include "kernels/data_type.h"

namespace muster::kernels::cuda {

struct CublasLt {
#define MUSTER_DECLARE(name, symbol, parameters) CublasStatus(*name) parameters = nullptr;
  CUBLASLT_FUNCTIONS(MUSTER_DECLARE)
#undef MUSTER_DECLARE
  const char* (*status_text)(CublasStatus) = nullptr;

  // With cuBLASLt's word: UNIMPLEMENTED for what it does not support, INTERNAL otherwise.
  absl::Status StatusOf(CublasStatus code, absl::string_view what) const;
};

// libcublasLt.so of CUDA 13 or else of 12. NOT_FOUND where there is none; FAILED_PRECONDITION where
// it lacks a function.
absl::StatusOr<CublasLt> OpenCublasLt(const LibrarySearchPath& places);

//   d = epilogue(op(a) * op(b) + c), of column-major matrices: d [m, n], op(a) [m, k], op(b) [k,
//   n].
// Products of elements of operand_type are added up in float32.
struct MatmulProblem {
  int64_t m, n, k;
  bool transpose_a, transpose_b;  // then a is [k, m] in memory, and b [n, k]
  DataType operand_type;
  DataType d_type;  // of c, d and bias
  bool add_c;
  // With kCublasLtEpilogueBias bias [m] is added to each column; with kBiasGradientOfB bias [n]
  // receives the sums of op(b)'s columns.
  CublasLtEpilogue epilogue;
};

// For the thread of its handle's device.
class CublasLtMatmul {
 public:
  // By the algorithm that heuristics propose first. UNIMPLEMENTED where there is none that needs
  // at most as many bytes of workspace.
  static absl::StatusOr<CublasLtMatmul> Make(const CublasLt& cublaslt, CublasLtHandle handle,
                                             const MatmulProblem& problem, size_t workspace_bytes);

  // Queued in the stream. c and bias where the problem has such; all 16-byte aligned, but for the
  // workspace, which is 256-byte aligned.
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
  absl::StatusOr<Owned> Layout(DataType type, int64_t rows, int64_t columns) const;

  const CublasLt* cublaslt_;
  CublasLtHandle handle_;
  MatmulProblem problem_;
  Owned matmul_, a_, b_, d_;
  CublasLtAlgorithm algorithm_ = {};
  size_t workspace_bytes_ = 0;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_LIBRARY_CUBLASLT_H_
