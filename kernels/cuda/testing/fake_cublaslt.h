/* How a test steers the library that stands in for cuBLASLt, and what it learns from it. */
#ifndef MUSTER_KERNELS_CUDA_TESTING_FAKE_CUBLASLT_H_
#define MUSTER_KERNELS_CUDA_TESTING_FAKE_CUBLASLT_H_

#include <stdint.h>

typedef struct FakeCublasLt {
  /* Steered by the test. */
  int no_epilogue;    /* proposes nothing for products with one */
  int nothing;        /* proposes nothing at all */
  int failing_create; /* cublasLtCreate fails */
  int failing_run;    /* products fail */
  /* Counted. */
  int64_t proposals;
  int64_t runs;
  int64_t runs_with_epilogue;
} FakeCublasLt;

/* By the name MusterFakeCublasLt. */
typedef FakeCublasLt* MusterFakeCublasLtFunction(void);

#endif /* MUSTER_KERNELS_CUDA_TESTING_FAKE_CUBLASLT_H_ */
