// Handles the signals with which the worker asks a rank to stop.
#ifndef MUSTER_TRAINER_RANK_STOP_SIGNALS_H_
#define MUSTER_TRAINER_RANK_STOP_SIGNALS_H_

#include <set>

#include "proto/muster/v1/job.pb.h"
#include "trainer/loop/rank_requests.h"

namespace muster::rank {

// The job's stop signal; SIGTERM by default.
int StopSignalOf(const v1::JobSpec& spec);
// The signals that stop a rank: SIGTERM, which a shim without its worker sends, and the job's.
std::set<int> StopSignalsOf(const v1::JobSpec& spec);

// While it exists, the stop signals of a job become requests to its training. A signal that arrives
// when the training does not accept requests ends the process as if it were not handled. At most
// one object at a time; for a process with one rank.
class StopSignals {
 public:
  // `requests` outlives the object.
  StopSignals(train::RankRequests* requests, const v1::JobSpec& spec);
  // Signals that are ignored meanwhile remain ignored.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  const std::set<int> signals_;
};

// Ends the process by the signal's default action.
void EndBySignal(int signal);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_STOP_SIGNALS_H_
