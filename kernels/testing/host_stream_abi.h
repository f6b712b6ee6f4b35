/* ABI of a host stream for fake GPU libraries in tests, which receive it as `cudaStream_t`. */
#ifndef MUSTER_KERNELS_TESTING_HOST_STREAM_ABI_H_
#define MUSTER_KERNELS_TESTING_HOST_STREAM_ABI_H_

#include <stddef.h>

/* A range of device memory that a task reads, or writes completely. */
typedef struct HostStreamAccess {
  const void* data;
  size_t bytes;
  int writes;
} HostStreamAccess;

typedef struct HostStreamTask {
  /* Makes progress without blocking; returns whether the task has finished, after which it may be
   * started again. One thread at a time. */
  int (*step)(void* data);
  void (*release)(void* data); /* called when the stream no longer needs the task */
  void* data;
  /* What the task accesses, for streams that check it. Read by enqueue only. */
  const HostStreamAccess* accesses;
  size_t access_count;
} HostStreamTask;

typedef struct HostStreamAbi {
  /* Queues a task after all tasks queued before. */
  void (*enqueue)(struct HostStreamAbi* stream, HostStreamTask task);
} HostStreamAbi;

#endif /* MUSTER_KERNELS_TESTING_HOST_STREAM_ABI_H_ */
