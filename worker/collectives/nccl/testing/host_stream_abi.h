/* What a host stream is to the library that stands in for NCCL: the `cudaStream_t` that it gets. */
#ifndef MUSTER_WORKER_COLLECTIVES_NCCL_TESTING_HOST_STREAM_ABI_H_
#define MUSTER_WORKER_COLLECTIVES_NCCL_TESTING_HOST_STREAM_ABI_H_

typedef struct HostStreamTask {
  /* Goes on without blocking -> whether it has come to its end. */
  int (*step)(void* data);
  void (*release)(void* data); /* when the stream is done with it */
  void* data;
} HostStreamTask;

typedef struct HostStreamAbi {
  /* Behind all that was queued before. By the thread that steps the stream. */
  void (*enqueue)(struct HostStreamAbi* stream, HostStreamTask task);
} HostStreamAbi;

#endif /* MUSTER_WORKER_COLLECTIVES_NCCL_TESTING_HOST_STREAM_ABI_H_ */
