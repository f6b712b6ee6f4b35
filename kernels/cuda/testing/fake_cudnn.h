/* The settings, counters and engines of the fake cuDNN. */
#ifndef MUSTER_KERNELS_CUDA_TESTING_FAKE_CUDNN_H_
#define MUSTER_KERNELS_CUDA_TESTING_FAKE_CUDNN_H_

#include <stdint.h>

/* The engines for each supported graph, in the order of proposal; the last one in fallback mode. */
enum FakeCudnnEngine {
  kFakeNondeterministic = 10, /* computes wrong results, so that a test which uses it fails */
  kFakeTensorCores = 20,      /* rounds float32 operands to bfloat16 */
  kFakeOrdinary = 30,         /* requires that its knob is set */
  kFakeCompiled = 40,         /* is compiled at run time */
  kFakePlain = 50,            /* needs no workspace */
};

typedef struct FakeCudnn {
  /* Set by the test. */
  int mixed_outputs;       /* supports outputs of another type than the operands */
  int no_fusion;           /* supports no epilogue */
  int only_compiled;       /* proposes kFakeCompiled only */
  int failing_create;      /* cudnnCreate fails */
  int failing_engine;      /* plans of this engine fail when they run */
  int retired_engine;      /* plans of this engine cannot be built */
  int dry_run;             /* plans compute nothing when they run */
  int64_t workspace_bytes; /* workspace of each engine except kFakePlain */
  /* Counters. */
  int64_t heuristics;
  int64_t plans;
  int64_t runs;
  int64_t fused_runs;
  int last_engine; /* engine of the last run */
} FakeCudnn;

/* Type of the exported function MusterFakeCudnn. */
typedef FakeCudnn* MusterFakeCudnnFunction(void);

#endif /* MUSTER_KERNELS_CUDA_TESTING_FAKE_CUDNN_H_ */
