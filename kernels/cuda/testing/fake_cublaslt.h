/* The settings and counters of the fake cuBLASLt. */
#ifndef MUSTER_KERNELS_CUDA_TESTING_FAKE_CUBLASLT_H_
#define MUSTER_KERNELS_CUDA_TESTING_FAKE_CUBLASLT_H_

#include <stdint.h>

typedef struct FakeCublasLt {
  /* Set by the test. */
  int no_epilogue;    /* supports no product with an epilogue */
  int nothing;        /* supports no product at all */
  int failing_create; /* cublasLtCreate fails */
  int failing_run;    /* products fail; with 2 because of exhausted memory */
  /* Counters. */
  int64_t heuristic_calls;
  int64_t runs;
  int64_t runs_with_epilogue;
  /* Of the last product. */
  uint32_t operand_alignments[4]; /* promised, of A, B, C and D */
  int compute_type;
  int reductions;
} FakeCublasLt;

/* Type of the exported function MusterFakeCublasLt. */
typedef FakeCublasLt* MusterFakeCublasLtFunction(void);

#endif /* MUSTER_KERNELS_CUDA_TESTING_FAKE_CUBLASLT_H_ */
