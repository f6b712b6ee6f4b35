// State that the parts of the core share: the time of the step, deadlines, counters, and the
// effects collected so far. It holds no jobs or nodes and makes no decisions, so that a unit test
// of one part needs nothing else.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_CONTEXT_H_
#define MUSTER_COORDINATOR_CORE_CONTEXT_H_

#include <string>
#include <utility>

#include "common/time/time.h"
#include "coordinator/core/event.h"
#include "coordinator/core/options.h"
#include "coordinator/core/stats.h"
#include "coordinator/core/steady_clock.h"
#include "coordinator/core/store_identity.h"
#include "coordinator/core/store_space.h"
#include "coordinator/core/timers.h"

namespace muster::core {

struct Context {
  explicit Context(Options core_options)
      : options(std::move(core_options)),
        clock(options.boot_id),
        leases_end(!options.awaits_listening) {}

  void Log(std::string line) { effects.logs.push_back(std::move(line)); }

  const Options options;
  StoreIdentity store;
  StoreSpace space;
  SteadyClock clock;
  Time now;  // on that clock
  Effects effects;
  Timers timers;
  StatsCollector stats;
  // Whether leases may end: not before the service listens, nor once it closes.
  bool leases_end;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_CONTEXT_H_
