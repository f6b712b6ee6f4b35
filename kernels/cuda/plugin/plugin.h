/* The interface of libmuster-cuda.so: one exported function, which returns a table of functions and
 * kernels. Plain C types; no exceptions. Error texts live as long as the library.
 */
#ifndef MUSTER_KERNELS_CUDA_PLUGIN_PLUGIN_H_
#define MUSTER_KERNELS_CUDA_PLUGIN_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

/* Incremented whenever the interface changes, here or in kernels/kernel_table.h and the headers
 * that it includes. */
#define MUSTER_CUDA_ABI 6

/* A GPU with its own stream. Used by one thread at a time, which must have entered it. */
typedef struct MusterCudaContext MusterCudaContext;
/* A cudaEvent_t. */
typedef struct MusterCudaEvent MusterCudaEvent;
/* A cudaGraphExec_t. */
typedef struct MusterCudaGraph MusterCudaGraph;

#define MUSTER_CUDA_INLINE_BYTES 256

typedef struct MusterCudaApi {
  uint32_t abi;                /* MUSTER_CUDA_ABI; the first member in every version */
  uint32_t kernel_table_bytes; /* size of the table that `kernels` points to */

  /* A muster::kernels::KernelTable. Its functions queue kernels in the stream of the context that
   * the calling thread has entered. */
  const void* kernels;

  /* Number of devices; 0, with *error set, if there is none or the driver fails. */
  int (*device_count)(const char** error);

  /* Functions that return a text return an error, or null on success. */
  const char* (*open)(int ordinal, MusterCudaContext** context);
  void (*close)(MusterCudaContext* context);
  /* A thread must enter the context before every call below and every kernel. */
  void (*enter)(MusterCudaContext* context);
  const char* (*device_name)(const MusterCudaContext* context);

  /* Device memory, zeroed in stream order. */
  const char* (*allocate)(MusterCudaContext* context, size_t bytes, void** data);
  void (*release)(MusterCudaContext* context, void* data);
  /* Pinned host memory, at the same address for host and device; uninitialised. */
  const char* (*allocate_host)(MusterCudaContext* context, size_t bytes, void** data);
  void (*release_host)(MusterCudaContext* context, void* data);

  /* Copies queued in the stream; synchronize returns their errors. copy_to_host waits for the
   * stream. After copy_to_device returns, the caller may overwrite `host`, unless it is from
   * allocate_host. Up to MUSTER_CUDA_INLINE_BYTES are passed as a kernel argument: the call does
   * not wait, and the caller may overwrite `host` in either case. */
  void (*copy_to_device)(MusterCudaContext* context, void* to, const void* host, size_t bytes);
  void (*copy_to_host)(MusterCudaContext* context, void* host, const void* from, size_t bytes);
  void (*copy)(MusterCudaContext* context, void* to, const void* from, size_t bytes);
  void (*zero)(MusterCudaContext* context, void* to, size_t bytes);

  /* Waits for the stream; returns the first error since open, including those of kernels. */
  const char* (*synchronize)(MusterCudaContext* context);
  /* Returns the first error since open, including those of kernels that have finished, without
   * waiting. Not while capturing. *refused_bytes: size of the allocation that failed; 0 if the
   * error is another. */
  const char* (*error)(MusterCudaContext* context, size_t* refused_bytes);

  /* Bytes of free device memory. */
  const char* (*free_memory)(MusterCudaContext* context, size_t* bytes);

  /* Events as in DeviceEvent of kernels/device.h. make_event returns null after an error, which
   * synchronize returns. event_done and wait_for_event may be called by any thread, without
   * entering; wait_for_event returns the error of the work that it waited for. */
  MusterCudaEvent* (*make_event)(MusterCudaContext* context);
  void (*release_event)(MusterCudaContext* context, MusterCudaEvent* event);
  void (*record_event)(MusterCudaContext* context, MusterCudaEvent* event);
  int (*event_done)(MusterCudaEvent* event);
  const char* (*wait_for_event)(MusterCudaEvent* event);

  /* A muster::kernels::ConvolutionKernels; used like `kernels`. */
  const void* convolution_kernels;
  /* The context's cudaStream_t. */
  void* (*stream)(MusterCudaContext* context);
  /* Waits for the work that work(argument) queues in the stream, and returns its duration. */
  const char* (*time)(MusterCudaContext* context, void (*work)(void*), void* argument,
                      float* milliseconds);
  /* Returns 1 if the device `ordinal` can access the memory of device `peer` directly, and from now
   * on does; else 0. Any thread may call it. */
  int (*enable_peer_access)(int ordinal, int peer);
  /* The latest CUDA version that the driver supports (13000 is 13.0); 0 without a driver. */
  int (*driver_version)(void);

  /* Between the two calls, work that this thread queues in the stream is captured instead of run.
   * start_capture is null if the implementation does not support capture. If finish_capture fails,
   * nothing has run, and errors of calls that cannot be captured are forgotten. */
  const char* (*start_capture)(MusterCudaContext* context);
  const char* (*finish_capture)(MusterCudaContext* context, MusterCudaGraph** graph);
  void (*launch_graph)(MusterCudaContext* context, MusterCudaGraph* graph);
  void (*destroy_graph)(MusterCudaContext* context, MusterCudaGraph* graph);

  /* Additional streams, with the highest priority, and events that order them. For any thread that
   * has called use_device or entered the context. synchronize returns none of these errors. If the
   * context's stream is being captured, work that waits for it is captured as well. */
  const char* (*use_device)(const MusterCudaContext* context);
  const char* (*make_stream)(void** stream);
  const char* (*release_stream)(void* stream);
  const char* (*make_stream_event)(MusterCudaEvent** event);
  void (*release_stream_event)(MusterCudaEvent* event);
  const char* (*record_on_stream)(void* stream, MusterCudaEvent* event);
  const char* (*stream_wait_event)(void* stream, MusterCudaEvent* event);
  const char* (*query_stream_event)(MusterCudaEvent* event, int* reached);
  const char* (*copy_on_stream)(void* stream, void* to, const void* from, size_t bytes);
  /* Device memory; uninitialised. */
  const char* (*allocate_uninitialized)(size_t bytes, void** data);
  void (*release_uninitialized)(void* data);
} MusterCudaApi;

#define MUSTER_CUDA_API_SYMBOL "MusterCudaGetApi"

#ifdef __cplusplus
extern "C"
#endif
    const MusterCudaApi*
    MusterCudaGetApi(void);

#endif /* MUSTER_KERNELS_CUDA_PLUGIN_PLUGIN_H_ */
