// A second core that has seen the same events as the coordinator's, up to one: comparing the two
// shows everything that this event changed.
#ifndef MUSTER_TESTS_SIMULATION_CORE_TWIN_H_
#define MUSTER_TESTS_SIMULATION_CORE_TWIN_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/event.h"
#include "coordinator/core/options.h"

namespace muster::simulation {

// The inputs of a core since its start.
class CoreHistory {
 public:
  CoreHistory(core::Options options, std::vector<store::Record> records, Time loaded)
      : options_(std::move(options)), records_(std::move(records)), loaded_(loaded) {}

  void Add(const core::Event& event, Time now, bool more) { steps_.push_back({event, now, more}); }
  // Returns a core in the same state.
  std::unique_ptr<core::Core> Replay() const;

 private:
  struct Step {
    core::Event event;
    Time now;
    bool more;
  };

  core::Options options_;
  std::vector<store::Record> records_;
  Time loaded_;
  std::vector<Step> steps_;
};

// Compares two cores and the effects of their last steps, apart from warnings about reports and the
// number of the commit. Returns the first difference; empty if there is none.
std::string FindDifference(const core::Core& core, const core::Effects& effects,
                           const core::Core& twin, const core::Effects& twin_effects, Time now);

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_CORE_TWIN_H_
