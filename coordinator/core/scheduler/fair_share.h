// The owners' use of the cluster, with exponential decay, for fair share.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_FAIR_SHARE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_FAIR_SHARE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "common/time/time.h"

namespace muster::core {

// The scheduler's view of the owners.
class OwnerUsage {
 public:
  virtual ~OwnerUsage() = default;
  // Slot-seconds used until `now`, each weighted by 0.5^(its age / half-life). 0 for an unknown
  // owner.
  virtual double Usage(const std::string& owner, SteadyTime now) const = 0;
  // The slots of the owner's running generations.
  virtual uint32_t RunningSlots(const std::string& owner) const = 0;
};

// Decayed use after `elapsed`, during which `slots` slots ran, of an owner who started with
// `usage`.
//   usage * d + slots * (half_life / ln 2) * (1 - d), where d = 0.5^(elapsed / half_life)
double DecayedUsage(double usage, uint32_t slots, absl::Duration elapsed, absl::Duration half_life);

// Not thread-safe.
class FairShare : public OwnerUsage {
 public:
  explicit FairShare(absl::Duration half_life) : half_life_(half_life) {}

  void OnStart(const std::string& owner, uint32_t slots, SteadyTime now);
  void OnEnd(const std::string& owner, uint32_t slots, SteadyTime now);
  // Sets the use of an owner as of a time, which may be before the start of the steady clock.
  void Restore(const std::string& owner, double usage, SteadyTime as_of);

  double Usage(const std::string& owner, SteadyTime now) const override;
  uint32_t RunningSlots(const std::string& owner) const override;

 private:
  struct Account {
    double usage = 0;  // as of `as_of`
    SteadyTime as_of;
    uint32_t slots = 0;
  };
  double UsageOf(const Account& account, SteadyTime now) const;
  // Moves the account to `now`; creates it if it is missing.
  Account& Charge(const std::string& owner, SteadyTime now);

  absl::Duration half_life_;
  std::map<std::string, Account> accounts_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_FAIR_SHARE_H_
