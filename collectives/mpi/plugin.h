/* What libmuster-mpi.so gives: one function, whose table is all that crosses the boundary. Plain C
 * types; nothing is thrown. All of it is for one thread, which starts MPI and is the only one that
 * calls it.
 *
 * The functions that give back a text give null when they succeeded; a text lives until the next
 * call.
 */
#ifndef MUSTER_COLLECTIVES_MPI_PLUGIN_H_
#define MUSTER_COLLECTIVES_MPI_PLUGIN_H_

#include <stdint.h>

/* Another one with every change of this file. */
#define MUSTER_MPI_ABI 1

/* Some of MPI_COMM_WORLD's processes. Lives as long as the process: MPI wants all of a group's
 * members to free it together. */
typedef struct MusterMpiGroup MusterMpiGroup;
/* Messages under way. */
typedef struct MusterMpiBatch MusterMpiBatch;

typedef struct MusterMpiMessage {
  void* data;     /* that MPI reads, or writes to, until the message is done */
  uint64_t bytes; /* from 1 to MUSTER_MPI_MESSAGE_BYTES; both sides name the same number */
  uint32_t peer;  /* in the group */
  uint32_t tag;   /* messages of a tag from one process to another keep their order */
  uint32_t sends; /* or receives */
  uint32_t done;  /* written atomically */
} MusterMpiMessage;

#define MUSTER_MPI_MESSAGE_BYTES (1u << 30)

typedef struct MusterMpiApi {
  uint32_t abi;           /* MUSTER_MPI_ABI; first in every version */
  uint32_t message_bytes; /* sizeof(MusterMpiMessage) */

  /* MPI's own name and version, e.g. "Open MPI v4.1.4". Before start, too. */
  const char* (*version)(void);

  /* Blocks until all processes of the MPI job have started. Once in a process. */
  const char* (*start)(void);
  /* In MPI_COMM_WORLD. */
  uint32_t (*rank)(void);
  uint32_t (*size)(void);

  /* Blocks until all members have called, with the same members, in the group's order, and tag. */
  const char* (*make_group)(const uint32_t* members, uint32_t size, uint32_t tag,
                            MusterMpiGroup** group);

  /* Starts all of them; `messages` stays until the batch is released. */
  const char* (*begin)(MusterMpiGroup* group, MusterMpiMessage* messages, uint32_t count,
                       MusterMpiBatch** batch);
  /* Moves what can be moved at once and marks what is done; `left` are not. */
  const char* (*progress)(MusterMpiBatch* batch, uint32_t* left);
  /* Moves what MPI has yet to send of messages that are done: it moves nothing unless it is called.
   */
  void (*poke)(void);
  /* Of a batch whose messages are done. */
  void (*release)(MusterMpiBatch* batch);

  /* Blocks until all processes of the MPI job have called. The last call. */
  const char* (*finish)(void);
} MusterMpiApi;

#define MUSTER_MPI_API_SYMBOL "MusterMpiGetApi"

#ifdef __cplusplus
extern "C"
#endif
    const MusterMpiApi*
    MusterMpiGetApi(void);

#endif /* MUSTER_COLLECTIVES_MPI_PLUGIN_H_ */
