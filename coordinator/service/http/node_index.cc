#include "coordinator/service/http/node_index.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "coordinator/service/http/json/json_text.h"

namespace muster::service {
namespace {

char SlotMark(const v1::Slot& slot) {
  if (!slot.unavailable().empty()) return slot.returning() ? '~' : '!';
  return slot.job_id().empty() ? '.' : '#';
}

}  // namespace

std::string NodeTileJson(const v1::Node& node) {
  std::string slots;
  for (const v1::Slot& slot : node.slots()) slots.push_back(SlotMark(slot));
  return JsonObject()
      .Add("n", node.name())
      .Add("s", absl::AsciiStrToLower(v1::NodeState_Name(node.state())))
      .Add("d", slots)
      .Add("c", node.cordoned())
      .Add("l", node.leaving())
      .Add("x", !node.conflict().empty())
      .Add("f", node.failed_launches())
      .Take();
}

void NodeIndex::Update(std::shared_ptr<const Snapshot> snapshot) {
  absl::MutexLock lock(&mutex_);
  if (snapshot == snapshot_) return;
  snapshot_ = std::move(snapshot);
  ++version_;
  std::map<std::string, Tile> tiles;
  for (const v1::Node& node : snapshot_->nodes) {
    Tile& tile = tiles[node.name()];
    tile.json = NodeTileJson(node);
    const auto before = tiles_.find(node.name());
    const bool same = before != tiles_.end() && before->second.json == tile.json;
    tile.version = same ? before->second.version : version_;
  }
  for (auto& [name, tile] : tiles_) {
    if (tiles.count(name) != 0) continue;
    tiles[name] = {"", tile.gone ? tile.version : version_, true};
  }
  tiles_ = std::move(tiles);
}

NodeIndex::Changes NodeIndex::Since(uint64_t version) const {
  Changes changes;
  absl::MutexLock lock(&mutex_);
  changes.version = version_;
  for (const auto& [name, tile] : tiles_) {
    if (tile.version <= version) continue;
    if (!tile.gone) {
      changes.rows.push_back(tile.json);
    } else if (version > 0) {
      changes.gone.push_back(name);
    }
  }
  return changes;
}

}  // namespace muster::service
