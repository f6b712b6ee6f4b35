// A fake libcublasLt.so. Computes matrix products on the CPU, and rejects what NVIDIA's library
// does not support.
#include "kernels/cuda/testing/fake_cublaslt.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/cuda/library/cublaslt_abi.h"
#include "kernels/half.h"
#include "kernels/testing/host_stream_task.h"

using muster::kernels::DataType;
using muster::kernels::LoadElement;
using muster::kernels::StoreElement;

namespace {

constexpr size_t kWorkspaceBytes = 4096;
constexpr size_t kWorkspaceAlignment = 256;
constexpr uint64_t kAlgorithm = 0x5eed;

FakeCublasLt control;

struct Matmul {
  CublasComputeType compute = kCublasCompute32F;
  int32_t transpose_a = 0;
  int32_t transpose_b = 0;
  uint32_t epilogue = kCublasLtEpilogueNone;
  void* bias = nullptr;
};

struct Layout {
  CublasDataType type;
  int64_t rows, columns, leading;

  DataType data_type() const {
    return type == kCublasHalf       ? DataType::kFloat16
           : type == kCublasBfloat16 ? DataType::kBfloat16
                                     : DataType::kFloat32;
  }
  // From the first element to the last, with the gaps between columns.
  size_t bytes() const {
    return static_cast<size_t>((columns - 1) * leading + rows) *
           muster::kernels::SizeOf(data_type());
  }
  double Load(const void* matrix, int64_t row, int64_t column) const {
    return LoadElement(data_type(), matrix, column * leading + row);
  }
};

struct Preference {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};  // A, B, C, D
};

bool Aligned(const void* pointer, uint64_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

bool Supported(const Matmul& matmul, const Layout& a, const Layout& b, const Layout& d) {
  if (control.nothing || (control.no_epilogue && matmul.epilogue != kCublasLtEpilogueNone)) {
    return false;
  }
  return a.type == b.type && (d.type == a.type || d.type == kCublasFloat);
}

// D = by_a * A * B + by_c * C, with the epilogue.
struct Product {
  Matmul matmul;
  Layout in_a, in_b, in_c, in_d;
  const void *a, *b, *c;
  void* d;
  float by_a, by_c;

  bool biased() const { return (matmul.epilogue & kCublasLtEpilogueBias) != 0; }
  bool has_bias_gradient() const { return matmul.epilogue == kCublasLtEpilogueBiasGradientOfB; }

  std::vector<HostStreamAccess> Accesses() const {
    std::vector<HostStreamAccess> all = {
        {a, in_a.bytes(), 0}, {b, in_b.bytes(), 0}, {d, in_d.bytes(), 1}};
    if (by_c != 0) all.push_back({c, in_c.bytes(), 0});
    const size_t element = muster::kernels::SizeOf(in_d.data_type());
    if (biased()) all.push_back({matmul.bias, static_cast<size_t>(in_d.rows) * element, 0});
    if (has_bias_gradient()) {
      all.push_back({matmul.bias, static_cast<size_t>(in_d.columns) * element, 1});
    }
    return all;
  }

  void Run() const {
    const int64_t k = matmul.transpose_a ? in_a.rows : in_a.columns;
    const auto element_b = [&](int64_t row, int64_t column) {
      return matmul.transpose_b ? in_b.Load(b, column, row) : in_b.Load(b, row, column);
    };
    const bool relu = (matmul.epilogue & kCublasLtEpilogueRelu) != 0;
    for (int64_t column = 0; column < in_d.columns; ++column) {
      for (int64_t row = 0; row < in_d.rows; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) {
          const double left = matmul.transpose_a ? in_a.Load(a, i, row) : in_a.Load(a, row, i);
          sum += left * element_b(i, column);
        }
        sum *= by_a;
        if (by_c != 0) sum += by_c * in_c.Load(c, row, column);
        if (biased()) sum += LoadElement(in_d.data_type(), matmul.bias, row);
        if (relu && sum < 0) sum = 0;
        StoreElement(in_d.data_type(), sum, d, column * in_d.leading + row);
      }
      if (has_bias_gradient()) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) sum += element_b(i, column);
        StoreElement(in_d.data_type(), sum, matmul.bias, column);
      }
    }
  }
};

}  // namespace

extern "C" {

FakeCublasLt* MusterFakeCublasLt(void) { return &control; }

const char* cublasLtGetStatusString(CublasStatus status) {
  return status == kCublasNotSupported ? "not supported" : "the fake's error";
}

CublasStatus cublasLtCreate(CublasLtHandle* handle) {
  if (control.failing_create) return 1;
  *handle = &control;
  return kCublasSuccess;
}

CublasStatus cublasLtDestroy(CublasLtHandle) { return kCublasSuccess; }

CublasStatus cublasLtMatmulDescCreate(CublasLtMatmulDescriptor* matmul, CublasComputeType compute,
                                      CublasDataType scale) {
  if (compute != kCublasCompute32F && compute != kCublasCompute32FFastTf32) {
    return kCublasInvalidValue;
  }
  if (scale != kCublasFloat) return kCublasInvalidValue;
  *matmul = new Matmul{.compute = compute};
  return kCublasSuccess;
}

CublasStatus cublasLtMatmulDescDestroy(CublasLtMatmulDescriptor matmul) {
  delete static_cast<Matmul*>(matmul);
  return kCublasSuccess;
}

CublasStatus cublasLtMatmulDescSetAttribute(CublasLtMatmulDescriptor descriptor,
                                            CublasLtMatmulAttribute attribute, const void* value,
                                            size_t bytes) {
  auto& matmul = *static_cast<Matmul*>(descriptor);
  const auto set = [&](auto& member) {
    if (bytes != sizeof(member)) return static_cast<CublasStatus>(kCublasInvalidValue);
    std::memcpy(&member, value, bytes);
    return static_cast<CublasStatus>(kCublasSuccess);
  };
  switch (attribute) {
    case kCublasLtTransposeA:
      return set(matmul.transpose_a);
    case kCublasLtTransposeB:
      return set(matmul.transpose_b);
    case kCublasLtEpilogueAttribute:
      return set(matmul.epilogue);
    case kCublasLtBiasPointer:
      return set(matmul.bias);
  }
  return kCublasInvalidValue;
}

CublasStatus cublasLtMatrixLayoutCreate(CublasLtMatrixLayout* layout, CublasDataType type,
                                        uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading};
  return kCublasSuccess;
}

CublasStatus cublasLtMatrixLayoutDestroy(CublasLtMatrixLayout layout) {
  delete static_cast<Layout*>(layout);
  return kCublasSuccess;
}

CublasStatus cublasLtMatmulPreferenceCreate(CublasLtPreference* preference) {
  *preference = new Preference;
  return kCublasSuccess;
}

CublasStatus cublasLtMatmulPreferenceDestroy(CublasLtPreference preference) {
  delete static_cast<Preference*>(preference);
  return kCublasSuccess;
}

CublasStatus cublasLtMatmulPreferenceSetAttribute(CublasLtPreference preference,
                                                  CublasLtPreferenceAttribute attribute,
                                                  const void* value, size_t bytes) {
  auto& preferred = *static_cast<Preference*>(preference);
  if (attribute == kCublasLtMaxWorkspaceBytes && bytes == sizeof(preferred.workspace_bytes)) {
    std::memcpy(&preferred.workspace_bytes, value, bytes);
    return kCublasSuccess;
  }
  if (bytes != sizeof(uint32_t)) return kCublasInvalidValue;
  switch (attribute) {
    case kCublasLtReductionMask:
      std::memcpy(&preferred.reductions, value, bytes);
      return kCublasSuccess;
    case kCublasLtAlignmentOfA:
    case kCublasLtAlignmentOfB:
    case kCublasLtAlignmentOfC:
    case kCublasLtAlignmentOfD:
      std::memcpy(&preferred.alignments[attribute - kCublasLtAlignmentOfA], value, bytes);
      return kCublasSuccess;
    default:
      return kCublasInvalidValue;
  }
}

CublasStatus cublasLtMatmulAlgoGetHeuristic(CublasLtHandle, CublasLtMatmulDescriptor matmul,
                                            CublasLtMatrixLayout a, CublasLtMatrixLayout b,
                                            CublasLtMatrixLayout, CublasLtMatrixLayout d,
                                            CublasLtPreference preference, int,
                                            CublasLtHeuristicResult* results, int* count) {
  ++control.heuristic_calls;
  const auto& preferred = *static_cast<Preference*>(preference);
  *count = 0;
  if (preferred.workspace_bytes < kWorkspaceBytes ||
      (preferred.reductions & kCublasLtReductionInComputeType) == 0 ||
      !Supported(*static_cast<Matmul*>(matmul), *static_cast<Layout*>(a), *static_cast<Layout*>(b),
                 *static_cast<Layout*>(d))) {
    return kCublasNotSupported;
  }
  *count = 1;
  results[0] = {};
  results[0].algorithm.data[0] = kAlgorithm;
  for (int i = 0; i < 4; ++i) results[0].algorithm.data[1 + i] = preferred.alignments[i];
  results[0].algorithm.data[5] = preferred.reductions;
  results[0].workspace_bytes = kWorkspaceBytes;
  return kCublasSuccess;
}

CublasStatus cublasLtMatmul(CublasLtHandle, CublasLtMatmulDescriptor descriptor, const void* alpha,
                            const void* a, CublasLtMatrixLayout a_layout, const void* b,
                            CublasLtMatrixLayout b_layout, const void* beta, const void* c,
                            CublasLtMatrixLayout c_layout, void* d, CublasLtMatrixLayout d_layout,
                            const CublasLtAlgorithm* algorithm, void* workspace, size_t bytes,
                            void* stream) {
  const auto& matmul = *static_cast<Matmul*>(descriptor);
  const auto &in_a = *static_cast<Layout*>(a_layout), &in_b = *static_cast<Layout*>(b_layout);
  const auto &in_c = *static_cast<Layout*>(c_layout), &in_d = *static_cast<Layout*>(d_layout);
  if (control.failing_run == 2) return kCublasAllocationFailed;
  if (control.failing_run || algorithm->data[0] != kAlgorithm || bytes != kWorkspaceBytes ||
      stream == nullptr || !Supported(matmul, in_a, in_b, in_d)) {
    return kCublasInvalidValue;
  }
  for (int i = 0; i < 4; ++i) {
    control.operand_alignments[i] = static_cast<uint32_t>(algorithm->data[1 + i]);
  }
  const void* const operands[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i) {
    if (!Aligned(operands[i], algorithm->data[1 + i])) return kCublasInvalidValue;
  }
  if (workspace == nullptr || !Aligned(workspace, kWorkspaceAlignment)) return kCublasInvalidValue;
  const int64_t k = matmul.transpose_a ? in_a.rows : in_a.columns;
  if (k != (matmul.transpose_b ? in_b.columns : in_b.rows) ||
      in_d.rows != (matmul.transpose_a ? in_a.columns : in_a.rows) ||
      in_d.columns != (matmul.transpose_b ? in_b.rows : in_b.columns)) {
    return kCublasInvalidValue;
  }
  ++control.runs;
  if (matmul.epilogue != kCublasLtEpilogueNone) ++control.runs_with_epilogue;
  control.compute_type = matmul.compute;
  control.reductions = static_cast<int>(algorithm->data[5]);
  const float by_a = *static_cast<const float*>(alpha), by_c = *static_cast<const float*>(beta);
  const Product product = {matmul, in_a, in_b, in_c, in_d, a, b, c, d, by_a, by_c};
  std::vector<HostStreamAccess> accesses = product.Accesses();
  accesses.push_back({workspace, bytes, 1});
  muster::kernels::EnqueueHostTask(
      stream,
      [product, workspace, bytes] {
        std::memset(workspace, 0xff, bytes);
        product.Run();
        return true;
      },
      accesses);
  return kCublasSuccess;
}

}  // extern "C"
