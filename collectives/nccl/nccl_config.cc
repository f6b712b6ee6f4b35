#include "collectives/nccl/nccl_config.h"

#include <cstdlib>

namespace muster::collectives {

NcclConfig MakeNcclConfig() {
  NcclConfig config = {};
  config.size = sizeof(config);
  config.magic = NCCL_CONFIG_MAGIC;
  config.version = kNcclOldestVersion;
  config.blocking = 0;
  config.cga_cluster_size = kNcclUndefined;
  config.min_ctas = kNcclUndefined;
  const bool users =
      std::getenv("NCCL_MAX_CTAS") != nullptr || std::getenv("NCCL_MIN_CTAS") != nullptr;
  config.max_ctas = users ? kNcclUndefined : kNcclMaxCtas;
  config.split_share = kNcclUndefined;
  return config;
}

}  // namespace muster::collectives
