#include "coordinator/core/scheduler/fair_share.h"

#include <algorithm>
#include <cmath>

namespace muster::core {

double DecayedUsage(double usage, uint32_t slots, absl::Duration elapsed,
                    absl::Duration half_life) {
  const double half_lives = std::max(0.0, absl::FDivDuration(elapsed, half_life));
  const double decay = std::exp2(-half_lives);
  // -expm1 keeps short periods exact, in which 1 - decay would lose most digits.
  const double gained = -std::expm1(-half_lives * M_LN2);
  return usage * decay + slots * absl::ToDoubleSeconds(half_life) / M_LN2 * gained;
}

double FairShare::UsageOf(const Account& account, SteadyTime now) const {
  return DecayedUsage(account.usage, account.slots, now - account.as_of, half_life_);
}

FairShare::Account& FairShare::Charge(const std::string& owner, SteadyTime now) {
  const auto [entry, added] = accounts_.try_emplace(owner);
  Account& account = entry->second;
  if (added) {
    account.as_of = now;
  } else if (now > account.as_of) {
    account.usage = UsageOf(account, now);
    account.as_of = now;
  }
  return account;
}

void FairShare::OnStart(const std::string& owner, uint32_t slots, SteadyTime now) {
  Charge(owner, now).slots += slots;
}

void FairShare::OnEnd(const std::string& owner, uint32_t slots, SteadyTime now) {
  Account& account = Charge(owner, now);
  account.slots -= std::min(account.slots, slots);
}

void FairShare::Restore(const std::string& owner, double usage, SteadyTime as_of) {
  accounts_[owner] = {usage, as_of, 0};
}

double FairShare::Usage(const std::string& owner, SteadyTime now) const {
  const auto account = accounts_.find(owner);
  return account == accounts_.end() ? 0 : UsageOf(account->second, now);
}

uint32_t FairShare::RunningSlots(const std::string& owner) const {
  const auto account = accounts_.find(owner);
  return account == accounts_.end() ? 0 : account->second.slots;
}

}  // namespace muster::core
