#include "worker/agent/lease/promises.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "common/time/proto_time.h"
#include "glog/logging.h"

namespace muster::agent {
namespace {

int64_t ToMs(SteadyTime time) {
  // Rounded up: a voucher must not seem to end early.
  return absl::ToInt64Milliseconds(absl::Ceil(time.since_start(), absl::Milliseconds(1)));
}

SteadyTime FromMs(int64_t ms) { return SteadyTime(absl::Milliseconds(ms)); }

// Whether two messages about the ranks of a generation on a node name the same ranks.
template <typename A, typename B>
bool NameSameRanks(const A& a, const B& b) {
  return a.generation() == b.generation() && a.job_id() == b.job_id() &&
         a.node_name() == b.node_name();
}

}  // namespace

Promises::Promises(v1::PromiseRecord record, std::string boot_id, SteadyTime now, Store store)
    : record_(std::move(record)), store_(std::move(store)) {
  const bool blank = record_.boot_id().empty();
  if (record_.boot_id() == boot_id) return;
  // An earlier record may have been lost with the disk.
  record_.set_created_boot_ms(blank ? ToMs(now) : 0);
  for (v1::PromiseRecord::Voucher& voucher : *record_.mutable_vouchers()) {
    voucher.set_until_boot_ms(ToMs(now + FromProto(voucher.lease())));
  }
  record_.set_boot_id(std::move(boot_id));
}

absl::Status Promises::SetFenceSet(const v1::FenceSet& set) {
  const absl::Status stored =
      Update([&set](v1::PromiseRecord& record) { *record.mutable_fence_set() = set; });
  // The coordinator does not know which set this worker would use.
  if (!stored.ok()) record_.clear_fence_set();
  return stored;
}

std::vector<v1::LeasedGeneration> Promises::Vouch(const v1::LeaseQuestion& question,
                                                  SteadyTime now) {
  std::vector<v1::LeasedGeneration> vouched;
  // A worker with the name of a member, but of another cluster or a copy of its store, receives
  // none of the bans that count.
  const uint64_t set = record_.fence_set().id();
  if (set == 0 || set != question.fence_set()) return vouched;
  v1::PromiseRecord next = record_;
  auto& vouchers = *next.mutable_vouchers();
  vouchers.erase(std::remove_if(vouchers.begin(), vouchers.end(),
                                [now](const v1::PromiseRecord::Voucher& voucher) {
                                  return FromMs(voucher.until_boot_ms()) <= now;
                                }),
                 vouchers.end());
  for (const v1::LeasedGeneration& asked : question.generations()) {
    if (!asked.has_lease()) continue;
    v1::PromiseRecord::Voucher voucher;
    voucher.set_node_name(question.node_name());
    voucher.set_job_id(asked.job_id());
    voucher.set_generation(asked.generation());
    voucher.set_until_boot_ms(ToMs(now + FromProto(asked.lease())));
    *voucher.mutable_lease() = asked.lease();
    const auto same = [&voucher](const auto& other) { return NameSameRanks(voucher, other); };
    if (std::any_of(next.bans().begin(), next.bans().end(), same)) continue;
    const auto earlier = std::find_if(vouchers.begin(), vouchers.end(), same);
    if (earlier == vouchers.end()) {
      *vouchers.Add() = std::move(voucher);
    } else if (voucher.until_boot_ms() > earlier->until_boot_ms()) {
      *earlier = std::move(voucher);
    }
    vouched.push_back(asked);
  }
  if (vouched.empty()) return vouched;
  const absl::Status stored = Update([&next](v1::PromiseRecord& record) { record.Swap(&next); });
  if (!stored.ok()) {
    LOG(ERROR) << "not vouching for the ranks of node " << question.node_name() << ": " << stored;
    vouched.clear();
  }
  return vouched;
}

absl::StatusOr<v1::BansKept> Promises::Ban(const v1::Bans& bans, SteadyTime now) {
  const absl::Status stored =
      Update([&bans](v1::PromiseRecord& record) { *record.mutable_bans() = bans.bans(); });
  if (!stored.ok()) return stored;
  v1::BansKept kept;
  kept.set_round(bans.round());
  for (const v1::Ban& ban : bans.bans()) {
    SteadyTime until;
    for (const v1::PromiseRecord::Voucher& voucher : record_.vouchers()) {
      if (NameSameRanks(voucher, ban)) until = FromMs(voucher.until_boot_ms());
    }
    if (record_.created_boot_ms() != 0) {
      until = std::max(until, FromMs(record_.created_boot_ms()) + FromProto(ban.lease()));
    }
    *kept.add_bans() = ban;
    *kept.mutable_bans(kept.bans_size() - 1)->mutable_voucher_left() =
        ToProto(std::max(until - now, absl::ZeroDuration()));
  }
  return kept;
}

absl::Status Promises::Update(const std::function<void(v1::PromiseRecord&)>& change) {
  v1::PromiseRecord next = record_;
  change(next);
  const absl::Status stored = store_(next);
  if (stored.ok()) record_ = std::move(next);
  return stored;
}

void LeaseWitness::Ask(const v1::LeaseQuestion& question, absl::Duration fresh) {
  if (outside_.now() - keeper_.acknowledged() <= fresh) return outside_.forward(question);
  outside_.probe([this, question](std::optional<SteadyTime> refused) {
    v1::PeerAnswer answer;
    if (refused.has_value()) keeper_.OnRefused(*refused);
    if (refused.has_value() && question.coordinator_address() == outside_.address()) {
      *answer.mutable_refused() = ToProto(outside_.now() - *refused);
    } else {
      answer = Vouch(question);
    }
    answer.set_node_name(node_name_);
    outside_.answer(question.id(), std::move(answer));
  });
}

v1::PeerAnswer LeaseWitness::Vouch(const v1::LeaseQuestion& question) {
  const SteadyTime now = outside_.now();
  v1::LeaseQuestion overdue;
  overdue.set_node_name(question.node_name());
  overdue.set_fence_set(question.fence_set());
  for (const v1::LeasedGeneration& asked : question.generations()) {
    // A worker that has newer evidence of its own is about to pass it on.
    if (now - keeper_.newest_evidence() < FromProto(asked.lease()) / 3) continue;
    *overdue.add_generations() = asked;
  }
  v1::PeerAnswer answer;
  for (v1::LeasedGeneration& vouched : promises_.Vouch(overdue, now)) {
    *answer.add_vouched() = std::move(vouched);
  }
  return answer;
}

}  // namespace muster::agent
