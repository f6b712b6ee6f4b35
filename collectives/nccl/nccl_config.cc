#include "collectives/nccl/nccl_config.h"

#include <cstdlib>

namespace muster::collectives {

NcclConfig MakeNcclConfig(int max_ctas) {
  NcclConfig config = {};
  config.size = sizeof(config);
  config.magic = NCCL_CONFIG_MAGIC;
  config.version = kNcclOldestVersion;
  config.blocking = 0;
  config.cga_cluster_size = kNcclUndefined;
  config.min_ctas = kNcclUndefined;
  const bool users =
      std::getenv("NCCL_MAX_CTAS") != nullptr || std::getenv("NCCL_MIN_CTAS") != nullptr;
  config.max_ctas = users ? kNcclUndefined : max_ctas;
  config.split_share = kNcclUndefined;
  return config;
}

}  // namespace muster::collectives
