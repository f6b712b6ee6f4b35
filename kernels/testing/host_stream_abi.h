/* What a host stream is to libraries that stand in for a GPU's in tests: the `cudaStream_t` that
 * they get. */
#ifndef MUSTER_KERNELS_TESTING_HOST_STREAM_ABI_H_
#define MUSTER_KERNELS_TESTING_HOST_STREAM_ABI_H_

typedef struct HostStreamTask {
  /* Goes on without blocking -> whether it has come to its end, after which it may begin anew. One
   * thread at a time. */
  int (*step)(void* data);
  void (*release)(void* data); /* when the stream is done with it */
  void* data;
} HostStreamTask;

typedef struct HostStreamAbi {
  /* Behind all that was queued before. */
  void (*enqueue)(struct HostStreamAbi* stream, HostStreamTask task);
} HostStreamAbi;

#endif /* MUSTER_KERNELS_TESTING_HOST_STREAM_ABI_H_ */
