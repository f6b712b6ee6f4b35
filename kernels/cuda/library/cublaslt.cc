#include "kernels/cuda/library/cublaslt.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/out_of_memory.h"

namespace muster::kernels::cuda {
namespace {

CublasDataType CublasTypeOf(DataType type) {
  switch (type) {
    case DataType::kBfloat16:
      return kCublasBfloat16;
    case DataType::kFloat16:
      return kCublasHalf;
    default:  // kFloat32
      return kCublasFloat;
  }
}

CublasComputeType ComputeTypeOf(const MatmulProblem& problem) {
  const bool tf32 = problem.numerics.tf32 && problem.operand_type == DataType::kFloat32;
  return tf32 ? kCublasCompute32FFastTf32 : kCublasCompute32F;
}

// Split-K sums are always float32; the order in which they are added up in place is not documented.
uint32_t ReductionsOf(const MatmulProblem& problem) {
  const bool in_place = !problem.numerics.deterministic && problem.d_type == DataType::kFloat32;
  return kCublasLtReductionInComputeType | (in_place ? kCublasLtReductionInPlace : 0);
}

}  // namespace

absl::Status CublasLt::StatusOf(CublasStatus code, absl::string_view what) const {
  if (code == kCublasSuccess) return absl::OkStatus();
  if (code == kCublasAllocationFailed) {
    return OutOfMemoryError("cuBLASLt", what, /*bytes=*/0, /*free_bytes=*/0, status_text(code));
  }
  const std::string message = absl::StrCat("cuBLASLt: ", what, ": ", status_text(code));
  const bool unsupported = code == kCublasNotSupported;
  return unsupported ? absl::UnimplementedError(message) : absl::InternalError(message);
}

absl::StatusOr<CublasLt> OpenCublasLt(const LibrarySearchPath& search_path) {
  const absl::StatusOr<void*> library =
      OpenLibrary({"libcublasLt.so.13", "libcublasLt.so.12"}, search_path);
  if (!library.ok()) return library.status();
  CublasLt cublaslt;
  std::string missing;
  const auto find = [&](const char* symbol, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(*library, symbol));
    if (function == nullptr) missing = symbol;
  };
#define MUSTER_FIND(name, symbol, parameters) find(#symbol, cublaslt.name);
  CUBLASLT_FUNCTIONS(MUSTER_FIND)
#undef MUSTER_FIND
  find("cublasLtGetStatusString", cublaslt.status_text);
  if (!missing.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA: libcublasLt.so lacks ", missing));
  }
  return cublaslt;
}

absl::StatusOr<CublasLtMatmul::Owned> CublasLtMatmul::Layout(DataType type, int64_t rows,
                                                             int64_t columns,
                                                             int64_t stride) const {
  CublasLtMatrixLayout layout = nullptr;
  const CublasStatus code =
      cublaslt_->create_layout(&layout, CublasTypeOf(type), static_cast<uint64_t>(rows),
                               static_cast<uint64_t>(columns), stride == 0 ? rows : stride);
  if (code != kCublasSuccess) return cublaslt_->StatusOf(code, "layout");
  return Owned(layout, {cublaslt_->destroy_layout});
}

absl::StatusOr<CublasLtMatmul> CublasLtMatmul::Make(const CublasLt& cublaslt, CublasLtHandle handle,
                                                    const MatmulProblem& problem,
                                                    size_t workspace_bytes) {
  CublasLtMatmul made(cublaslt, handle, problem);
  absl::Status status;
  const auto check = [&](CublasStatus code, absl::string_view what) {
    status.Update(cublaslt.StatusOf(code, what));
  };
  CublasLtMatmulDescriptor matmul = nullptr;
  check(cublaslt.create_matmul(&matmul, ComputeTypeOf(problem), kCublasFloat), "descriptor");
  CublasLtPreference raw_preference = nullptr;
  check(cublaslt.create_preference(&raw_preference), "preference");
  made.matmul_ = Owned(matmul, {cublaslt.destroy_matmul});
  const Owned preference(raw_preference, {cublaslt.destroy_preference});
  if (!status.ok()) return status;

  const auto set = [&](CublasLtMatmulAttribute attribute, const auto& value) {
    check(cublaslt.set_matmul(matmul, attribute, &value, sizeof(value)), "attribute");
  };
  set(kCublasLtTransposeA, problem.transpose_a ? kCublasTransposed : kCublasNotTransposed);
  set(kCublasLtTransposeB, problem.transpose_b ? kCublasTransposed : kCublasNotTransposed);
  set(kCublasLtEpilogueAttribute, problem.epilogue);
  const auto prefer = [&](CublasLtPreferenceAttribute attribute, const auto& value) {
    check(cublaslt.set_preference(raw_preference, attribute, &value, sizeof(value)), "preference");
  };
  prefer(kCublasLtMaxWorkspaceBytes, uint64_t{workspace_bytes});
  prefer(kCublasLtReductionMask, ReductionsOf(problem));
  for (const CublasLtPreferenceAttribute operand :
       {kCublasLtAlignmentOfA, kCublasLtAlignmentOfC, kCublasLtAlignmentOfD}) {
    prefer(operand, kMatmulAlignment);
  }
  prefer(kCublasLtAlignmentOfB, problem.b_alignment);

  const auto layout = [&](DataType type, int64_t rows, int64_t columns, bool transposed,
                          int64_t stride) {
    auto owned =
        made.Layout(type, transposed ? columns : rows, transposed ? rows : columns, stride);
    status.Update(owned.status());
    return owned.ok() ? *std::move(owned) : Owned();
  };
  made.a_ = layout(problem.operand_type, problem.m, problem.k, problem.transpose_a, 0);
  made.b_ =
      layout(problem.operand_type, problem.k, problem.n, problem.transpose_b, problem.b_stride);
  made.d_ = layout(problem.d_type, problem.m, problem.n, false, problem.d_stride);
  if (!status.ok()) return status;

  CublasLtHeuristicResult result = {};
  int count = 0;
  check(cublaslt.get_heuristic(handle, matmul, made.a_.get(), made.b_.get(), made.d_.get(),
                               made.d_.get(), raw_preference, 1, &result, &count),
        "heuristics");
  if (status.ok() && count > 0) check(result.state, "heuristics");
  if (!status.ok()) return status;
  if (count == 0)
    return absl::UnimplementedError("cuBLASLt has no algorithm for the matrix product");
  made.algorithm_ = result.algorithm;
  made.workspace_bytes_ = result.workspace_bytes;
  return made;
}

absl::Status CublasLtMatmul::Run(const void* a, const void* b, const void* c, void* d,
                                 const void* bias, void* workspace, void* stream) const {
  if (problem_.epilogue != kCublasLtEpilogueNone && problem_.epilogue != kCublasLtEpilogueRelu) {
    const CublasStatus code =
        cublaslt_->set_matmul(matmul_.get(), kCublasLtBiasPointer, &bias, sizeof(bias));
    if (code != kCublasSuccess) return cublaslt_->StatusOf(code, "bias");
  }
  const float alpha = 1, beta = problem_.add_c ? 1 : 0;
  return cublaslt_->StatusOf(
      cublaslt_->matmul(handle_, matmul_.get(), &alpha, a, a_.get(), b, b_.get(), &beta,
                        problem_.add_c ? c : d, d_.get(), d, d_.get(), &algorithm_, workspace,
                        workspace_bytes_, stream),
      "product");
}

}  // namespace muster::kernels::cuda
