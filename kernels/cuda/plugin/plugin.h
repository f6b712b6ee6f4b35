/* What libmuster-cuda.so gives: one function, whose table is all that crosses the boundary. Plain C
 * types; nothing is thrown, and error texts live as long as the library.
 */
#ifndef MUSTER_KERNELS_CUDA_PLUGIN_PLUGIN_H_
#define MUSTER_KERNELS_CUDA_PLUGIN_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

/* Another one with every change of this file or of kernels/kernel_table.h and what it names. */
#define MUSTER_CUDA_ABI 3

/* A GPU with a stream of its own. For one thread at a time, which has entered it. */
typedef struct MusterCudaContext MusterCudaContext;
/* A place in a context's stream, and what was captured there. */
typedef struct MusterCudaEvent MusterCudaEvent;
typedef struct MusterCudaGraph MusterCudaGraph;

#define MUSTER_CUDA_INLINE_BYTES 256

typedef struct MusterCudaApi {
  uint32_t abi;                /* MUSTER_CUDA_ABI; first in every version */
  uint32_t kernel_table_bytes; /* the size of what `kernels` points to */

  /* A muster::kernels::KernelTable. Its functions queue kernels in the stream of the context that
   * the calling thread has entered. */
  const void* kernels;

  /* How many devices there are; 0 with *error set where that cannot be said. */
  int (*device_count)(const char** error);

  /* The functions that give back a text give null when they succeeded. */
  const char* (*open)(int ordinal, MusterCudaContext** context);
  void (*close)(MusterCudaContext* context);
  /* Before every call below and every kernel, by the thread that makes it. */
  void (*enter)(MusterCudaContext* context);
  const char* (*device_name)(const MusterCudaContext* context);

  /* Zeroed by the stream. */
  const char* (*allocate)(MusterCudaContext* context, size_t bytes, void** data);
  void (*release)(MusterCudaContext* context, void* data);
  /* The host's memory, locked, at the same address for both; not zeroed. */
  const char* (*allocate_host)(MusterCudaContext* context, size_t bytes, void** data);
  void (*release_host)(MusterCudaContext* context, void* data);

  /* In the stream; their errors are synchronize's. copy_to_host waits. `host` in copy_to_device may
   * be written to once it returned, unless it came from allocate_host. A few bytes, up to
   * MUSTER_CUDA_INLINE_BYTES, travel with the call: nobody waits for anything, and `host` may be
   * written to in any case. */
  void (*copy_to_device)(MusterCudaContext* context, void* to, const void* host, size_t bytes);
  void (*copy_to_host)(MusterCudaContext* context, void* host, const void* from, size_t bytes);
  void (*copy)(MusterCudaContext* context, void* to, const void* from, size_t bytes);
  void (*zero)(MusterCudaContext* context, void* to, size_t bytes);

  /* Waits for the stream -> the first error since open, of kernels too. */
  const char* (*synchronize)(MusterCudaContext* context);

  /* Bytes that may still be allocated. */
  const char* (*free_memory)(MusterCudaContext* context, size_t* bytes);

  /* What kernels/device.h says of DeviceEvent. make_event gives null after an error, which is
   * synchronize's. event_done and wait_for_event are for any thread, which need not have entered;
   * wait_for_event gives the error of what it waited for. */
  MusterCudaEvent* (*make_event)(MusterCudaContext* context);
  void (*release_event)(MusterCudaContext* context, MusterCudaEvent* event);
  void (*record_event)(MusterCudaContext* context, MusterCudaEvent* event);
  int (*event_done)(MusterCudaEvent* event);
  const char* (*wait_for_event)(MusterCudaEvent* event);

  /* A muster::kernels::ConvolutionKernels, as `kernels`. */
  const void* convolution_kernels;
  /* The stream itself, a cudaStream_t. */
  void* (*stream)(MusterCudaContext* context);
  /* What work(argument) queues in the stream takes there; waits for it. */
  const char* (*time)(MusterCudaContext* context, void (*work)(void*), void* argument,
                      float* milliseconds);
  /* The latest CUDA that the driver supports, 13000 being 13.0; 0 where there is no driver. */
  int (*driver_version)(void);

  /* In between, what is queued by this thread is recorded and does not happen. start_capture is
   * null where nothing can be recorded. */
  const char* (*start_capture)(MusterCudaContext* context);
  const char* (*finish_capture)(MusterCudaContext* context, MusterCudaGraph** graph);
  void (*launch_graph)(MusterCudaContext* context, MusterCudaGraph* graph);
  void (*destroy_graph)(MusterCudaContext* context, MusterCudaGraph* graph);

  /* Streams beside the context's, whose kernels go first, and what orders them. For any thread that
   * has called use_device, or entered; no error here is synchronize's. Where the context's stream
   * is being captured, so is what waits for it here. */
  const char* (*use_device)(const MusterCudaContext* context);
  const char* (*make_stream)(void** stream);
  const char* (*release_stream)(void* stream);
  const char* (*make_stream_event)(MusterCudaEvent** event);
  void (*release_stream_event)(MusterCudaEvent* event);
  const char* (*record_on_stream)(void* stream, MusterCudaEvent* event);
  const char* (*stream_wait_event)(void* stream, MusterCudaEvent* event);
  const char* (*query_stream_event)(MusterCudaEvent* event, int* reached);
  const char* (*copy_on_stream)(void* stream, void* to, const void* from, size_t bytes);
  /* Not zeroed. */
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
