#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/service/http/node_json.h"
#include "coordinator/service/http/streams.h"

namespace muster::service {
namespace {

absl::StatusOr<std::string> FindNode(const Snapshot& snapshot, const std::string& name) {
  const auto node = std::find_if(snapshot.nodes.begin(), snapshot.nodes.end(),
                                 [&](const v1::Node& one) { return one.name() == name; });
  if (node == snapshot.nodes.end()) return absl::NotFoundError(absl::StrCat("no node ", name));
  return NodeJson(*node);
}

}  // namespace

void StreamNode(PageSources& sources, const std::string& name, EventWriter& out) {
  TextCache::Text sent;
  do {
    out.SendIfNew("node",
                  sources.texts.Get("node/" + name, kPageInterval,
                                    [&] { return FindNode(*sources.snapshot(), name); }),
                  sent);
    out.Tick();
  } while (out.IsOpen() && sources.ticker.Wait());
}

}  // namespace muster::service
