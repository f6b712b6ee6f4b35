#include "collectives/nccl/testing/fake_comm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace fake_nccl {
namespace {

constexpr int kLivenessPolls = 64;  // polls between checks for exited peers

// Returns the words of the rule lines that start with `kind`.
std::vector<std::vector<std::string>> RulesOf(const std::string& kind) {
  std::vector<std::vector<std::string>> rules;
  const char* const path = std::getenv("FAKE_NCCL");
  if (path == nullptr) return rules;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream text(line);
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    if (!words.empty() && words[0] == kind) rules.push_back(words);
  }
  return rules;
}

}  // namespace

[[noreturn]] void Misuse(const std::string& what) {
  std::fprintf(stderr, "fake_nccl: %s\n", what.c_str());
  std::abort();
}

std::unique_ptr<std::string> FindRule(const char* kind, const char* symbol, int rank,
                                      bool has_word) {
  for (const auto& words : RulesOf(kind)) {
    size_t next = 1;
    if (symbol != nullptr && (words.size() <= next || words[next++] != symbol)) continue;
    std::string word;
    if (has_word && words.size() > next) word = words[next++];
    if (words.size() > next && words[next] != std::to_string(rank)) continue;
    return std::make_unique<std::string>(word);
  }
  return nullptr;
}

}  // namespace fake_nccl

using fake_nccl::FindRule;
using fake_nccl::Misuse;
using fake_nccl::RankState;

void NcclCommOpaque::Join() {
  for (const std::string& path : paths) {
    const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC | (is_part ? O_CREAT : 0), 0600);
    if (opened < 0) Misuse("a unique id that does not exist or was used before: " + path);
    if (file < 0) {
      file = opened;
    } else {
      close(opened);
    }
  }
  const auto bytes = static_cast<off_t>(layout.end);
  if (ftruncate(file, bytes) != 0) Misuse("ftruncate");
  void* const mapped = mmap(nullptr, layout.end, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) Misuse("mmap");
  memory = static_cast<char*>(mapped);
  uint32_t agreed = 0;
  if (!rendezvous().size.compare_exchange_strong(agreed, size) &&
      agreed != static_cast<uint32_t>(size)) {
    Misuse("ranks of groups of different sizes share a unique id");
  }
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  if (state_of(rank).joined.exchange(1) != 0 || fcntl(file, F_OFD_SETLK, &lock) != 0) {
    Misuse("a unique id used twice by rank " + std::to_string(rank));
  }
  const char* const host = std::getenv("NCCL_HOSTID");
  const auto bus_id = FindRule("bus_id", nullptr, rank, /*has_word=*/true);
  std::snprintf(state_of(rank).gpu, sizeof(RankState::gpu), "%s/%s",
                host == nullptr ? "here" : host,
                bus_id == nullptr ? std::to_string(rank).c_str() : bus_id->c_str());
  rendezvous().joined.fetch_add(1);
}

bool NcclCommOpaque::PollRendezvous() {
  if (rendezvous().joined.load() < static_cast<uint32_t>(size)) return false;
  for (int peer = 0; peer < size; ++peer) {
    const bool same = std::strcmp(state_of(peer).gpu, state_of(rank).gpu) == 0;
    if (peer == rank || !same) continue;
    last_error = "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                 std::to_string(peer) + " both on CUDA device " + state_of(peer).gpu;
    state = kNcclInvalidUsage;
  }
  if (rank == 0) {
    for (const std::string& path : paths) unlink(path.c_str());
  }
  return true;
}

void NcclCommOpaque::CheckAlive(const std::vector<int>& peers) {
  if (++waits % fake_nccl::kLivenessPolls != 0) return;
  for (const int peer : peers) {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = peer;
    lock.l_len = 1;
    // A rank holds the lock of its byte until it leaves.
    if (peer == rank || fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) continue;
    if (state == kNcclRemoteError) return;
    last_error = "remote process exited or there was a network error";
    state = kNcclRemoteError;
  }
}
