// A libmuster-cuda.so of another version of Muster.
#include "kernels/cuda/plugin/plugin.h"

extern "C" const MusterCudaApi* MusterCudaGetApi(void) {
  static const MusterCudaApi api = {.abi = 4711, .kernel_table_bytes = 8};
  return &api;
}
