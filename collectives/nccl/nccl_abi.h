/* The subset of NCCL's binary interface that this project uses: symbols of libnccl.so.2 and the
 * layout of their parameters in versions 2.18 and newer. Plain types, so that the fake NCCL can be
 * built against the same declarations.
 *
 * Source: NVIDIA's NCCL documentation, https://docs.nvidia.com/deeplearning/nccl. */
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_ABI_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_ABI_H_

#include <limits.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct NcclCommOpaque* NcclComm;
typedef void* NcclStream; /* a cudaStream_t */
typedef void* NcclWindow; /* an ncclWindow_t */
typedef int NcclResult;
typedef int NcclDataType;
typedef int NcclRedOp;

enum {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7
};

enum {
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat16 = 6,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8,
  kNcclBfloat16 = 9
};

enum { kNcclSum = 0, kNcclMax = 2, kNcclMin = 3 };

enum { kNcclUniqueIdBytes = 128 };
typedef struct {
  char internal[kNcclUniqueIdBytes];
} NcclUniqueId;

enum { kNcclUndefined = INT_MIN };
enum { kNcclSplitNoColor = -1 };
enum { kNcclWindowSymmetric = 1 };

/* Layout of 2.18. Later versions accept it by its size and treat their additional members as
 * undefined. */
typedef struct {
  size_t size;
  unsigned int magic;
  unsigned int version;
  int blocking;
  int cga_cluster_size;
  int min_ctas;
  int max_ctas;
  const char* net_name;
  int split_share;
} NcclConfig;

#define NCCL_CONFIG_MAGIC 0xcafebeefU
enum { kNcclOldestVersion = 21800 }; /* major * 10000 + minor * 100 + patch */

/* X(member name, symbol, parameters) for functions that return NcclResult. The functions in the
 * first list are required; each of the others enables one feature. */
#define NCCL_REQUIRED_FUNCTIONS(X)                                                               \
  X(version, ncclGetVersion, (int*))                                                             \
  X(make_unique_id, ncclGetUniqueId, (NcclUniqueId*))                                            \
  X(init_rank, ncclCommInitRankConfig, (NcclComm*, int, NcclUniqueId, int, NcclConfig*))         \
  X(split, ncclCommSplit, (NcclComm, int, int, NcclComm*, NcclConfig*))                          \
  X(finalize, ncclCommFinalize, (NcclComm))                                                      \
  X(destroy, ncclCommDestroy, (NcclComm))                                                        \
  X(abort, ncclCommAbort, (NcclComm))                                                            \
  X(async_error, ncclCommGetAsyncError, (NcclComm, NcclResult*))                                 \
  X(all_reduce, ncclAllReduce,                                                                   \
    (const void*, void*, size_t, NcclDataType, NcclRedOp, NcclComm, NcclStream))                 \
  X(reduce_scatter, ncclReduceScatter,                                                           \
    (const void*, void*, size_t, NcclDataType, NcclRedOp, NcclComm, NcclStream))                 \
  X(all_gather, ncclAllGather, (const void*, void*, size_t, NcclDataType, NcclComm, NcclStream)) \
  X(broadcast, ncclBroadcast,                                                                    \
    (const void*, void*, size_t, NcclDataType, int, NcclComm, NcclStream))                       \
  X(reduce, ncclReduce,                                                                          \
    (const void*, void*, size_t, NcclDataType, NcclRedOp, int, NcclComm, NcclStream))            \
  X(send, ncclSend, (const void*, size_t, NcclDataType, int, NcclComm, NcclStream))              \
  X(recv, ncclRecv, (void*, size_t, NcclDataType, int, NcclComm, NcclStream))                    \
  X(group_start, ncclGroupStart, (void))                                                         \
  X(group_end, ncclGroupEnd, (void))

#define NCCL_OPTIONAL_FUNCTIONS(X)                                                 \
  X(init_rank_scalable, ncclCommInitRankScalable, /* 2.23 */                       \
    (NcclComm*, int, int, int, NcclUniqueId*, NcclConfig*))                        \
  X(mem_alloc, ncclMemAlloc, (void**, size_t))                          /* 2.19 */ \
  X(mem_free, ncclMemFree, (void*))                                     /* 2.19 */ \
  X(comm_register, ncclCommRegister, (NcclComm, void*, size_t, void**)) /* 2.19 */ \
  X(comm_deregister, ncclCommDeregister, (NcclComm, void*))             /* 2.19 */ \
  X(window_register, ncclCommWindowRegister,                            /* 2.27 */ \
    (NcclComm, void*, size_t, NcclWindow*, int))                                   \
  X(window_deregister, ncclCommWindowDeregister, (NcclComm, NcclWindow)) /* 2.27 */

/* Functions that return text. */
#define NCCL_TEXT_FUNCTIONS(X)                      \
  X(error_string, ncclGetErrorString, (NcclResult)) \
  X(last_error, ncclGetLastError, (NcclComm))

#ifdef __cplusplus
}
static_assert(sizeof(NcclUniqueId) == 128 && sizeof(NcclConfig) == 48);
#endif

#endif /* MUSTER_COLLECTIVES_NCCL_NCCL_ABI_H_ */
