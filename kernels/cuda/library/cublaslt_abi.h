/* The part of cuBLASLt's binary interface that this project uses, as exported by CUDA 12 and 13.
 * Plain C, so that the fake cuBLASLt is built against the same declarations;
 * nvidia_headers_test.cc compares them with NVIDIA's headers.
 *
 * Source: NVIDIA's cuBLAS reference, https://docs.nvidia.com/cuda/cublas. */
#ifndef MUSTER_KERNELS_CUDA_LIBRARY_CUBLASLT_ABI_H_
#define MUSTER_KERNELS_CUDA_LIBRARY_CUBLASLT_ABI_H_

#include <stddef.h>
#include <stdint.h>

typedef int CublasStatus;
typedef void* CublasLtHandle;
typedef void* CublasLtMatmulDescriptor;
typedef void* CublasLtMatrixLayout;
typedef void* CublasLtPreference;

enum {
  kCublasSuccess = 0,
  kCublasAllocationFailed = 3,
  kCublasInvalidValue = 7,
  kCublasNotSupported = 15,
};

/* cudaDataType */
typedef enum CublasDataType {
  kCublasFloat = 0,
  kCublasHalf = 2,
  kCublasBfloat16 = 14,
} CublasDataType;

/* Accumulation in float32. */
typedef enum CublasComputeType {
  kCublasCompute32F = 68,         /* without rounding the operands first */
  kCublasCompute32FFastTf32 = 77, /* float32 operands are rounded to TF32 */
} CublasComputeType;
typedef enum CublasOperation { kCublasNotTransposed = 0, kCublasTransposed = 1 } CublasOperation;

typedef enum CublasLtEpilogue {
  kCublasLtEpilogueNone = 1,
  kCublasLtEpilogueRelu = 2,
  kCublasLtEpilogueBias = 4,
  kCublasLtEpilogueReluBias = 6,
  kCublasLtEpilogueBiasGradientOfB = 512,
} CublasLtEpilogue;

/* Reduction schemes for split-K. */
enum {
  kCublasLtReductionInPlace = 1,       /* partial sums are added up in D, in its type */
  kCublasLtReductionInComputeType = 2, /* partial sums are added up in the compute type */
};

typedef enum CublasLtMatmulAttribute {
  kCublasLtTransposeA = 3,
  kCublasLtTransposeB = 4,
  kCublasLtEpilogueAttribute = 7,
  kCublasLtBiasPointer = 8, /* elements of D's type */
} CublasLtMatmulAttribute;

typedef enum CublasLtPreferenceAttribute {
  kCublasLtMaxWorkspaceBytes = 1,
  kCublasLtReductionMask = 3,
  /* Minimum alignment of the pointer in bytes; 256 by default. */
  kCublasLtAlignmentOfA = 5,
  kCublasLtAlignmentOfB = 6,
  kCublasLtAlignmentOfC = 7,
  kCublasLtAlignmentOfD = 8,
} CublasLtPreferenceAttribute;

typedef struct CublasLtAlgorithm {
  uint64_t data[8];
} CublasLtAlgorithm;

typedef struct CublasLtHeuristicResult {
  CublasLtAlgorithm algorithm;
  size_t workspace_bytes;
  CublasStatus state;
  float waves;
  int reserved[4];
} CublasLtHeuristicResult;

/* X(member of struct CublasLt, symbol, parameters) for each function that returns CublasStatus.
 * Matrices are column-major; a layout has a type, rows, columns and the leading dimension. */
#define CUBLASLT_FUNCTIONS(X)                                                                    \
  X(create, cublasLtCreate, (CublasLtHandle*))                                                   \
  X(destroy, cublasLtDestroy, (CublasLtHandle))                                                  \
  X(create_matmul, cublasLtMatmulDescCreate,                                                     \
    (CublasLtMatmulDescriptor*, CublasComputeType, CublasDataType))                              \
  X(destroy_matmul, cublasLtMatmulDescDestroy, (CublasLtMatmulDescriptor))                       \
  X(set_matmul, cublasLtMatmulDescSetAttribute,                                                  \
    (CublasLtMatmulDescriptor, CublasLtMatmulAttribute, const void*, size_t))                    \
  X(create_layout, cublasLtMatrixLayoutCreate,                                                   \
    (CublasLtMatrixLayout*, CublasDataType, uint64_t, uint64_t, int64_t))                        \
  X(destroy_layout, cublasLtMatrixLayoutDestroy, (CublasLtMatrixLayout))                         \
  X(create_preference, cublasLtMatmulPreferenceCreate, (CublasLtPreference*))                    \
  X(destroy_preference, cublasLtMatmulPreferenceDestroy, (CublasLtPreference))                   \
  X(set_preference, cublasLtMatmulPreferenceSetAttribute,                                        \
    (CublasLtPreference, CublasLtPreferenceAttribute, const void*, size_t))                      \
  X(get_heuristic, cublasLtMatmulAlgoGetHeuristic,                                               \
    (CublasLtHandle, CublasLtMatmulDescriptor, CublasLtMatrixLayout, CublasLtMatrixLayout,       \
     CublasLtMatrixLayout, CublasLtMatrixLayout, CublasLtPreference, int,                        \
     CublasLtHeuristicResult*, int*))                                                            \
  X(matmul, cublasLtMatmul,                                                                      \
    (CublasLtHandle, CublasLtMatmulDescriptor, const void* alpha, const void* a,                 \
     CublasLtMatrixLayout, const void* b, CublasLtMatrixLayout, const void* beta, const void* c, \
     CublasLtMatrixLayout, void* d, CublasLtMatrixLayout, const CublasLtAlgorithm*,              \
     void* workspace, size_t, void* stream))

#endif /* MUSTER_KERNELS_CUDA_LIBRARY_CUBLASLT_ABI_H_ */
