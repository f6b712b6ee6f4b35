// Resolves train.loader.threads: auto.
#ifndef MUSTER_TRAINER_RANK_LOADER_THREADS_H_
#define MUSTER_TRAINER_RANK_LOADER_THREADS_H_

#include <cstdint>

#include "proto/muster/v1/job.pb.h"

namespace muster::rank {

// Loader threads of a rank that may use `cpus` CPUs. On CPUs, the loader and the computation share
// them, and the loader needs few: threads_per_rank. With a GPU, the CPUs have little else to do:
// all but the one of the thread that trains, or threads_per_rank if that is more than the default.
uint32_t LoaderThreads(const v1::Resources& resources, bool on_gpu, uint32_t cpus);

// CPUs of this process if its worker has bound it to them, otherwise its share of the CPUs that it
// has in common with the other `ranks` - 1 ranks of its job on this node.
uint32_t CpusOfRank(uint32_t ranks);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_LOADER_THREADS_H_
