#include "coordinator/core/recovery/hang_suspect.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace muster::core {
namespace {

// The most ranks described one by one in a message.
constexpr size_t kDescribed = 4;
// The signature of a rank that waits for others, if its stack does not show in which operation.
constexpr char kUnreadable[] = "collective";
constexpr double kBusy = 0.5;  // CPU seconds per second

// Parts of the frames of a thread that waits for other ranks. Only parts of the frames that make
// the call: a user's code may run within a module such as torch/nn/parallel/distributed.py.
constexpr std::array<absl::string_view, 7> kCollectiveFrames = {
    "c10d::",
    "gloo::",
    "nccl",
    "MPI_",
    "ompi_",
    "torch/distributed/distributed_c10d.py",
    "muster::collectives"};

struct Operation {
  absl::string_view name;
  std::vector<absl::string_view> frames;  // any of these is a part of a frame
};

// In order of preference: a frame may contain several of them, such as "reduce" in "all_reduce".
const std::vector<Operation>& Operations() {
  static const auto* const operations = new std::vector<Operation>{
      {"all_reduce", {"all_reduce", "allreduce", "Allreduce", "AllReduce"}},
      {"reduce_scatter", {"reduce_scatter", "ReduceScatter", "Reduce_scatter"}},
      {"all_gather", {"all_gather", "allgather", "Allgather", "AllGather"}},
      {"all_to_all", {"all_to_all", "alltoall", "Alltoall", "AllToAll"}},
      {"barrier", {"barrier (", "gloo::barrier", "BarrierWork", "MPI_Barrier", "::Barrier"}},
      {"broadcast", {"broadcast (", "gloo::broadcast", "Broadcast", "MPI_Bcast"}},
      {"scatter", {"scatter (", "gloo::scatter", "ScatterWork", "MPI_Scatter"}},
      {"gather", {"gather (", "gloo::gather", "GatherWork", "MPI_Gather"}},
      {"reduce", {"reduce (", "gloo::reduce", "ReduceWork", "MPI_Reduce"}},
      {"recv", {"recv (", "RecvWork", "MPI_Recv"}},
      {"send", {"send (", "SendWork", "MPI_Send"}},
  };
  return *operations;
}

bool ContainsAny(absl::string_view text, absl::string_view const* begin, size_t count) {
  return std::any_of(begin, begin + count,
                     [&](absl::string_view part) { return absl::StrContains(text, part); });
}

bool IsCollectiveFrame(absl::string_view frame) {
  return ContainsAny(frame, kCollectiveFrames.data(), kCollectiveFrames.size());
}

// The operation for people.
absl::string_view NameOf(absl::string_view operation) {
  return absl::StartsWith(operation, "@") ? "a collective" : operation;
}

// The evidence about one rank, interpreted.
struct View {
  const SilentRank* rank = nullptr;
  bool halted = false;  // stopped or gone
  bool waits_for_peers = false;
  // The collective that it waits in: its name, or "@" and the frame of a nameless one; empty: not
  // known.
  std::string operation;
  std::string python_frame;  // innermost Python frame of the main thread; may be empty

  bool answered() const { return rank->inspection.has_value(); }
  const v1::RankInspection& inspection() const { return *rank->inspection; }
  // Ranks that wait in the same way have the same signature.
  std::string Signature() const {
    if (!answered()) return "no answer";
    if (!operation.empty()) return operation;
    if (waits_for_peers) return kUnreadable;
    return inspection().waits_in().empty() ? inspection().state() : inspection().waits_in();
  }
};

// Names the operation of a thread, given as its frames.
std::string OperationOf(const std::vector<absl::string_view>& frames) {
  for (const absl::string_view frame : frames) {
    if (!IsCollectiveFrame(frame)) continue;
    for (const Operation& operation : Operations()) {
      if (ContainsAny(frame, operation.frames.data(), operation.frames.size())) {
        return std::string(operation.name);
      }
    }
  }
  // The libraries' names are often stripped of symbols of an unnamed namespace. The frame within
  // AsyncWork::execute is the same for all ranks in one operation of Gloo.
  for (size_t i = 1; i < frames.size(); ++i) {
    if (absl::StrContains(frames[i], "AsyncWork::execute")) {
      return absl::StrCat("@", frames[i - 1]);
    }
  }
  return "";
}

void ReadStack(absl::string_view stack, View& view) {
  bool is_main = false;
  bool is_python = false;
  std::vector<absl::string_view> frames;
  const auto end_thread = [&] {
    if (view.operation.empty()) view.operation = OperationOf(frames);
    frames.clear();
  };
  for (const absl::string_view line : absl::StrSplit(stack, '\n', absl::SkipEmpty())) {
    if (line[0] != ' ') {
      end_thread();
      is_main = absl::StartsWith(line, "main thread");
      is_python = absl::StrContains(line, "Python");
      continue;
    }
    const absl::string_view frame = absl::StripAsciiWhitespace(line);
    frames.push_back(frame);
    if (!is_main) continue;
    view.waits_for_peers |= IsCollectiveFrame(frame);
    if (is_python && view.python_frame.empty()) view.python_frame = std::string(frame);
  }
  end_thread();
}

View Look(const SilentRank& rank) {
  View view;
  view.rank = &rank;
  if (!view.answered()) return view;
  const v1::RankInspection& seen = view.inspection();
  view.halted = seen.state() == "stopped" || seen.state() == "zombie" || seen.state() == "gone";
  ReadStack(seen.stack(), view);
  if (seen.waits_in() == "socket") view.waits_for_peers = true;
  if (seen.stack().empty() && seen.waits_in() == "futex") view.waits_for_peers = true;
  return view;
}

std::string Describe(const View& view) {
  if (!view.answered()) return "has not been inspected, because its node did not answer";
  const v1::RankInspection& seen = view.inspection();
  if (seen.state() == "stopped") return "is stopped by a signal or a debugger";
  if (view.halted) return "has no running process";
  if (seen.state() == "disk") return "waits for a disk or a network file system";
  std::string text;
  const std::string& waits_in = seen.waits_in();
  if (view.waits_for_peers && !view.operation.empty()) {
    text = absl::StrCat("waits in ", NameOf(view.operation));
  } else if (view.waits_for_peers) {
    text = waits_in == "futex" && seen.stack().empty() ? "waits for a lock or a collective"
                                                       : "waits for other ranks";
  } else if (waits_in == "sleep") {
    text = "sleeps";
  } else if (waits_in == "futex") {
    text = "waits for a lock or another thread";
  } else if (waits_in == "poll") {
    text = "waits for input";
  } else if (!waits_in.empty()) {
    text = absl::StrCat("waits for a ", waits_in);
  } else if (seen.state() == "running" || seen.cpu_ratio() >= kBusy) {
    text = "runs code";
  } else {
    text = absl::StrCat("is in state ", seen.state());
  }
  if (seen.cpu_ratio() >= kBusy) {
    absl::StrAppend(&text, " and uses ", static_cast<int>(seen.cpu_ratio() * 100 + 0.5), "% CPU");
  }
  if (!view.python_frame.empty()) absl::StrAppend(&text, " at ", view.python_frame);
  return text;
}

std::string Name(const View& view) {
  return absl::StrCat("rank ", view.rank->rank, " on ", view.rank->node);
}

std::string DescribeAll(const std::vector<const View*>& views) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min(views.size(), kDescribed); ++i) {
    parts.push_back(absl::StrCat(Name(*views[i]), " ", Describe(*views[i])));
  }
  if (views.size() > kDescribed) {
    parts.push_back(absl::StrCat("and ", views.size() - kDescribed, " more"));
  }
  return absl::StrJoin(parts, "; ");
}

// `rest` describes the ranks that are not suspected; empty: nothing is added.
Suspicion Blame(const std::vector<const View*>& suspects, absl::string_view rest) {
  Suspicion suspicion;
  for (const View* view : suspects) suspicion.ranks.push_back(view->rank->rank);
  suspicion.message = DescribeAll(suspects);
  if (!rest.empty()) absl::StrAppend(&suspicion.message, ", while ", rest);
  return suspicion;
}

std::string Others(const std::vector<const View*>& views) {
  const bool one = views.size() == 1;
  const std::string who = one ? Name(*views[0]) : absl::StrCat(views.size(), " other ranks");
  const std::string& operation = views[0]->operation;
  const bool same = std::all_of(views.begin(), views.end(),
                                [&](const View* view) { return view->operation == operation; });
  return absl::StrCat(who, one ? " waits in " : " wait in ",
                      same && !operation.empty() ? NameOf(operation) : "collectives");
}

// Describes ranks with the same signature.
std::string Majority(const std::vector<const View*>& views) {
  if (views[0]->waits_for_peers) return Others(views);
  return absl::StrCat("each of ", views.size(), " other ranks ", Describe(*views[0]));
}

template <typename Predicate>
std::vector<const View*> Select(const std::vector<View>& views, Predicate predicate) {
  std::vector<const View*> selected;
  for (const View& view : views) {
    if (predicate(view)) selected.push_back(&view);
  }
  return selected;
}

// The ranks outside the largest group of equal signatures; empty if no group is the largest.
std::vector<const View*> OddOnes(const std::vector<View>& views, std::string* majority) {
  std::map<std::string, size_t> groups;
  for (const View& view : views) ++groups[view.Signature()];
  // Ranks whose operation could not be read differ from the others only if they are the majority.
  const auto unreadable = groups.find(kUnreadable);
  const bool ignored = unreadable != groups.end() && unreadable->second * 2 <= views.size();
  if (ignored) groups.erase(unreadable);
  size_t largest = 0;
  size_t of_that_size = 0;
  for (const auto& [signature, size] : groups) {
    if (size > largest) {
      largest = size;
      of_that_size = 0;
      *majority = signature;
    }
    if (size == largest) ++of_that_size;
  }
  if (groups.size() < 2 || of_that_size > 1) return {};
  return Select(views, [&](const View& view) {
    const std::string signature = view.Signature();
    return signature != *majority && !(ignored && signature == kUnreadable);
  });
}

}  // namespace

Suspicion FindSuspect(const std::vector<SilentRank>& ranks) {
  std::vector<View> views;
  views.reserve(ranks.size());
  for (const SilentRank& rank : ranks) views.push_back(Look(rank));

  const auto halted = Select(views, [](const View& view) { return view.halted; });
  if (!halted.empty()) return Blame(halted, "");

  const auto peers = Select(views, [](const View& view) { return view.waits_for_peers; });
  const auto busy =
      Select(views, [](const View& view) { return view.answered() && !view.waits_for_peers; });
  if (!peers.empty() && !busy.empty()) return Blame(busy, Others(peers));

  const auto unanswered = Select(views, [](const View& view) { return !view.answered(); });
  if (!unanswered.empty() && !peers.empty()) return Blame(unanswered, Others(peers));

  std::string majority;
  const auto odd = OddOnes(views, &majority);
  if (!odd.empty()) {
    const auto most = Select(views, [&](const View& view) { return view.Signature() == majority; });
    return Blame(odd, Majority(most));
  }

  std::vector<const View*> all;
  for (const View& view : views) all.push_back(&view);
  Suspicion suspicion = Blame(all, "");
  if (all.size() > 1) suspicion.message = absl::StrCat("no rank stands out: ", suspicion.message);
  return suspicion;
}

}  // namespace muster::core
