/* Interface of libmuster-mpi.so: one exported function that returns a table of functions. Plain C
 * types; no exceptions. All functions must be called by one thread, which also initializes MPI.
 *
 * Functions that return text return null on success and an error message on failure; the text is
 * valid until the next call.
 */
#ifndef MUSTER_COLLECTIVES_MPI_PLUGIN_H_
#define MUSTER_COLLECTIVES_MPI_PLUGIN_H_

#include <stdint.h>

/* Incremented with every change of this file. */
#define MUSTER_MPI_ABI 1

/* A subset of MPI_COMM_WORLD. Never freed: MPI requires all members of a communicator to free it
 * together. */
typedef struct MusterMpiGroup MusterMpiGroup;
/* Messages in flight. */
typedef struct MusterMpiBatch MusterMpiBatch;

typedef struct MusterMpiMessage {
  void* data;     /* read or written by MPI until the message is done */
  uint64_t bytes; /* 1 to MUSTER_MPI_MESSAGE_BYTES; equal on both sides */
  uint32_t peer;  /* rank in the group */
  uint32_t tag;   /* messages of one tag between two processes stay in order */
  uint32_t sends; /* 1: send, 0: receive */
  uint32_t done;  /* written atomically */
} MusterMpiMessage;

#define MUSTER_MPI_MESSAGE_BYTES (1u << 30)

typedef struct MusterMpiApi {
  uint32_t abi;           /* MUSTER_MPI_ABI; the first member in every version */
  uint32_t message_bytes; /* sizeof(MusterMpiMessage) */

  /* Name and version of the MPI library, e.g. "Open MPI v4.1.4". May be called before start. */
  const char* (*version)(void);

  /* Initializes MPI; blocks until all processes of the MPI job have started. Called once. */
  const char* (*start)(void);
  /* Rank and size in MPI_COMM_WORLD. */
  uint32_t (*rank)(void);
  uint32_t (*size)(void);

  /* Blocks until all members have called with the same members, in rank order, and the same tag. */
  const char* (*make_group)(const uint32_t* members, uint32_t size, uint32_t tag,
                            MusterMpiGroup** group);

  /* Starts all messages; `messages` must stay valid until the batch is released. */
  const char* (*begin)(MusterMpiGroup* group, MusterMpiMessage* messages, uint32_t count,
                       MusterMpiBatch** batch);
  /* Makes progress without blocking and marks completed messages; `left` is the number that
   * remain. */
  const char* (*progress)(MusterMpiBatch* batch, uint32_t* left);
  /* Lets MPI transmit data of completed sends: MPI makes progress only while it is called. */
  void (*poke)(void);
  /* Frees a batch whose messages are all done. */
  void (*release)(MusterMpiBatch* batch);

  /* Finalizes MPI; blocks until all processes of the MPI job have called. The last call. */
  const char* (*finish)(void);
} MusterMpiApi;

#define MUSTER_MPI_API_SYMBOL "MusterMpiGetApi"

#ifdef __cplusplus
extern "C"
#endif
    const MusterMpiApi*
    MusterMpiGetApi(void);

#endif /* MUSTER_COLLECTIVES_MPI_PLUGIN_H_ */
