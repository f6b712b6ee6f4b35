// A libmuster-mpi.so of another Muster version.
#include "collectives/mpi/plugin.h"

const MusterMpiApi* MusterMpiGetApi(void) {
  static constexpr MusterMpiApi kApi = {.abi = 4711, .message_bytes = sizeof(MusterMpiMessage)};
  return &kApi;
}
