/* What tests control in the substitute CUDA runtime, and what it reports. A library that contains
 * the runtime exports MusterPtxControl; every such library has a runtime of its own. All functions
 * are thread-safe.
 *
 * The same is set by environment variables, read at the first call of the runtime:
 *   PTX_DEVICES   number of devices (default 1)
 *   PTX_MEMORY    bytes of memory of each device (default 2 GiB)
 *   PTX_ORDER     see set_order (default 0)
 *   PTX_FAIL      FUNCTION:CALL:ERROR, separated by commas; see fail_call
 *   PTX_STATISTICS  if set, the process prints at its exit how many kernels it launched, how often,
 *                   and the instructions that their threads executed
 */
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_CONTROL_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_CONTROL_H_

#include <stddef.h>
#include <stdint.h>

typedef struct PtxControl {
  /* The order in which the work of streams and graphs runs: 0 as late as possible and only what is
   * waited for, the last captured node first; 1 other streams first; otherwise a random order with
   * this seed. */
  void (*set_order)(uint64_t seed);
  void (*set_memory)(size_t bytes);
  /* Makes the call number `call` (from 1) of `function` return the cudaError_t `error`. "execution"
   * is the execution of any queued work; its error is then asynchronous and sticky. */
  void (*fail_call)(const char* function, uint64_t call, int error);
  /* Ends all work, captures, faults and injected errors, as a new process would. Memory, streams
   * and events remain valid. */
  void (*reset)(void);
  /* Reports of faults since the last reset, which are also printed on stderr. The text is valid
   * until the next reset. */
  size_t (*reports)(void);
  const char* (*report)(size_t index);
  size_t (*allocations)(void); /* live allocations of all devices, without host memory */
  uint64_t (*launches)(void);
  uint64_t (*instructions)(void);
} PtxControl;

#define MUSTER_PTX_CONTROL_SYMBOL "MusterPtxControl"

#ifdef __cplusplus
extern "C"
#endif
    const PtxControl*
    MusterPtxControl(void);

#endif /* MUSTER_TESTS_GPU_PTX_RUNTIME_CONTROL_H_ */
