#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/http/json/node_json.h"
#include "coordinator/service/http/streams/streams.h"

namespace muster::service {
namespace {

absl::StatusOr<std::string> FindNode(const Snapshot& snapshot, const core::Actor& viewer,
                                     const std::string& name) {
  const auto node = std::find_if(snapshot.nodes.begin(), snapshot.nodes.end(),
                                 [&](const v1::Node& one) { return one.name() == name; });
  if (node == snapshot.nodes.end()) return absl::NotFoundError(absl::StrCat("no node ", name));
  v1::Node visible = *node;
  core::HidePrivate(viewer, visible);
  return NodeJson(visible);
}

}  // namespace

void StreamNode(PageSources& sources, const core::Actor& viewer, const std::string& name,
                EventWriter& out) {
  const std::string key = absl::StrCat(viewer.is_admin ? "private " : "", "node/", name);
  TextCache::Text sent;
  do {
    out.SendIfNew("node",
                  sources.texts.Get(key, kPageInterval,
                                    [&] { return FindNode(*sources.snapshot(), viewer, name); }),
                  sent);
    out.Tick();
  } while (sources.ticker.Wait(out));
}

}  // namespace muster::service
