/* How a test steers the library that stands in for cuDNN, and what it learns from it. */
#ifndef MUSTER_KERNELS_CUDA_TESTING_FAKE_CUDNN_H_
#define MUSTER_KERNELS_CUDA_TESTING_FAKE_CUDNN_H_

#include <stdint.h>

/* The engines that it offers for any graph that it takes, best first; the last as a fallback. */
enum FakeCudnnEngine {
  kFakeNondeterministic = 10, /* wrong, so that a test fails that meets it */
  kFakeTensorCores = 20,      /* in float32 of operands rounded to bfloat16 */
  kFakeOrdinary = 30,         /* whose knob must have been set */
  kFakeCompiled = 40,         /* at run time */
  kFakePlain = 50,            /* needs no workspace */
};

typedef struct FakeCudnn {
  /* Steered by the test. */
  int mixed_outputs;  /* takes convolutions whose output is of another type than its operands */
  int no_fusion;      /* takes no other epilogue */
  int only_compiled;  /* offers no engine but that */
  int failing_create; /* cudnnCreate fails */
  int failing_engine; /* whose plans fail when they run */
  int retired_engine; /* which cannot be built any more */
  int64_t workspace_bytes; /* of all but the plain engine */
  /* Counted. */
  int64_t heuristics;
  int64_t plans;
  int64_t runs;
  int64_t fused_runs;
  int last_engine; /* that ran */
} FakeCudnn;

/* By the name MusterFakeCudnn. */
typedef FakeCudnn* MusterFakeCudnnFunction(void);

#endif /* MUSTER_KERNELS_CUDA_TESTING_FAKE_CUDNN_H_ */
